"""The exchange of verified answers between agents."""
