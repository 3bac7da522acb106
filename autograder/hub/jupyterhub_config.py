"""The hub on one machine, on its loopback address; README.md here says what changes beyond one machine.

PASSLAB_HUB_URL is the address in the browser: http://localhost:8000. Each person's server has a host name of its own,
such as ada.localhost, so that no page of a learner's server lies in the origin of another's or the instructor's. For
others to reach the hub, put a web server with TLS in front of it that passes hub.example.org and *.hub.example.org to
the port on this machine, and set PASSLAB_HUB_URL=https://hub.example.org and PASSLAB_HUB_PORT.
"""

# mypy: disable-error-code="name-defined"

import os
from urllib.parse import quote, urlsplit

from autograder.hub import accounts
from autograder.hub.spawner import Passwords, Spawner
from passlab import course_paths

c = get_config()  # noqa: F821  (given by traitlets)

url = os.environ.get("PASSLAB_HUB_URL", "http://localhost:8000")
port = int(os.environ.get("PASSLAB_HUB_PORT", urlsplit(url).port or 8000))
state = accounts.folder() / "hub"

c.JupyterHub.bind_url = f"http://127.0.0.1:{port}"
c.JupyterHub.subdomain_host = url
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{port + 1}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{port + 2}"
c.ConfigurableHTTPProxy.command = str(course_paths.PROJECT / ".venv/hub/node_modules/.bin/configurable-http-proxy")
c.ConfigurableHTTPProxy.pid_file = str(state / "proxy.pid")
c.JupyterHub.db_url = f"sqlite:///{quote(str(state))}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = str(state / "cookie_secret")

c.JupyterHub.authenticator_class = Passwords
c.Authenticator.allow_all = True  # everybody with a password in accounts.csv
c.Authenticator.admin_users = {accounts.instructor()}
c.JupyterHub.spawner_class = Spawner
c.JupyterHub.allow_named_servers = True  # for the instructor's sections
c.JupyterHub.named_server_limit_per_user = lambda handler: (
    9 if handler.current_user.name == accounts.instructor() else 1
)
c.Spawner.start_timeout = c.Spawner.http_timeout = 180
