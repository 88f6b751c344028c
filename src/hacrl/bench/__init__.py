"""Measurements behind `hacrl bench`: always side by side in one run."""
