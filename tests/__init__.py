"""The tests, in folders named after the packages they test; `support` holds what several of them share."""
