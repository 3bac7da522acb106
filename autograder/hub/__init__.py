"""The class on a hub, on one machine: `make hub`.

Reading order: `accounts` (who may log in, and the folders that this takes), `spawner` (what of this machine a learner's
server sees), `jupyterhub_config` (the hub), `learner/` (settings of a learner's server), `__main__` (the command).
"""
