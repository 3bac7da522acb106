"""Bank of day 8."""
