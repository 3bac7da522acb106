"""`make bench`: each part is a module, `figures` defines what they yield, `__main__` is the command."""
