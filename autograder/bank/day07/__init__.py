"""Bank of day 7."""
