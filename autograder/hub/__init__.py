"""The class on a hub: on one machine with `make hub`, or on Kubernetes.

Reading order: `accounts` (who may log in, and the folders that this takes), `spawner` (what of this machine a learner's
server sees), `jupyterhub_config` (the hub), `learner/` (settings of a learner's server), `__main__` (the command).
Beyond one machine: `image` and `container/` (the images), `people` (user ids for a roster), `kubernetes/` (values for
Zero to JupyterHub, and manifests for grading).
"""
