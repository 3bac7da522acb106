"""Formats that are only viewed: one module each, with `read(obj, *inputs) -> Graph`."""
