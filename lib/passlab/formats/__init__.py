"""Formats that are only looked at: one module each, with `read(obj, *inputs) -> Graph`."""
