"""Bank of day 10."""
