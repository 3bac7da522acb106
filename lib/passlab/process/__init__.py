"""Communication between the project's processes."""
