"""`make bench`: the parts are modules, `figures` is what they yield, `__main__` the command."""
