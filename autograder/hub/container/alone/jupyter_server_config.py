"""A learner's container without a hub: JupyterLab, as `passlab lab` starts it, on all addresses of the container."""

# mypy: disable-error-code="name-defined"

c = get_config()  # noqa: F821  (given by traitlets)

c.ServerApp.ip = "0.0.0.0"
