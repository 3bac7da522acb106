"""Bank of day 3."""
