"""What is learned from runs: comparisons, audits, reports, checks of recipes, cost estimates."""
