"""Bank of day 4."""
