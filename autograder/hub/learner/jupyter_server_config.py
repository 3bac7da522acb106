"""A learner's server: small, offline, and gone when it is not used."""

# mypy: disable-error-code="name-defined"

c = get_config()  # noqa: F821  (given by traitlets)

c.ServerApp.jpserver_extensions = {
    "nbgrader.server_extensions.formgrader": False,
    "nbgrader.server_extensions.course_list": False,
    "nbgrader.server_extensions.validate_assignment": False,  # the course has `check`
    "jupyter_lsp": False,
    "jupyterlab_jupytext": False,
    "notebook": False,
}
c.ServerApp.contents_manager_class = "passlab.notebook.files.CourseFiles"
c.LabApp.extension_manager = "readonly"
# Other users of the machine can listen to a kernel's outputs on a TCP port, not on a socket in a private folder.
c.KernelManager.transport = "ipc"
c.MappingKernelManager.cull_idle_timeout = 60 * 60
c.MappingKernelManager.cull_connected = True
c.MappingKernelManager.cull_interval = 5 * 60
c.ServerApp.shutdown_no_activity_timeout = 2 * 60 * 60
