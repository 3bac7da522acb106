"""One module per IR, each with `read(obj, *inputs) -> Graph`; `passlab.graph.READERS` says which reads what."""
