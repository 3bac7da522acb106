"""A learner's container without a hub: JupyterLab on all addresses of the container, without nbgrader's pages."""

# mypy: disable-error-code="name-defined"

c = get_config()  # noqa: F821  (given by traitlets)

c.ServerApp.ip = "0.0.0.0"
c.ServerApp.jpserver_extensions = dict.fromkeys(
    (
        *(f"nbgrader.server_extensions.{name}" for name in ("assignment_list", "course_list", "formgrader")),
        *("nbgrader.server_extensions.validate_assignment", "jupyterlab_jupytext"),
    ),
    False,
)
c.LabApp.extension_manager = "readonly"
