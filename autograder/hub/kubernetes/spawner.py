"""What Zero to JupyterHub's values cannot say: who may log in, and what differs between people.

helm's --set-file hub.extraConfig.passlab=spawner.py adds this text to the chart's jupyterhub_config.py, where `c` and
`get_config` are defined. `custom.instructor` and `custom.people`, id → uid and section, come from people.json.
"""

# mypy: disable-error-code="name-defined"

people = get_config("custom.people", {})  # noqa: F821
instructor = get_config("custom.instructor")  # noqa: F821
instructor_image = get_config("custom.instructorImage")  # noqa: F821
#: The user of the image, who is the instructor; learners have numbers from 20001.
INSTRUCTOR_UID = 1000
#: Nothing but volumes can be written, and nothing in a container becomes root.
CONFINED = {
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def course(section):
    """Return nbgrader's course of a section, as `autograder.hub.accounts.course_id` does."""
    return f"passlab-{section}" if section else "passlab"


#: What makes a new home and a new section's exchange, as `autograder.hub.accounts` does on one machine. It must have no
#: other braces, which KubeSpawner would take for its own fields. A learner may have made a link of a folder: -h.
_PLACES = """
mkdir -p /home/learner/run
chown -h {uid}:{uid} /home/learner /home/learner/run
chmod 700 /home/learner
if [ ! -d /exchange/{course} ]; then
    install -d -o 1000 -g 1000 -m 755 /exchange/{course} /exchange/{course}/outbound
    install -d -o 1000 -g 1000 -m 3733 /exchange/{course}/inbound
    install -d -o 1000 -g 1000 -m 711 /exchange/{course}/feedback
fi
"""


def places(image, uid, course):
    """Return the container that gives new folders to their owners, before the server starts. It alone runs as root."""
    return {
        "name": "places",
        "image": image,
        "command": ["sh", "-ec", _PLACES.format(uid=uid, course=course)],
        "securityContext": {
            "runAsUser": 0,
            "runAsNonRoot": False,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "FOWNER", "FSETID", "DAC_OVERRIDE"]},
        },
        "volumeMounts": [
            {"name": "home", "mountPath": "/home/learner"},
            {"name": "exchange", "mountPath": "/exchange"},
        ],
    }


def prepare(spawner):
    """Set what is a person's own. A second server of the instructor's is a section."""
    name = spawner.user.name
    if name == instructor:
        spawner.image, spawner.uid, section = instructor_image, INSTRUCTOR_UID, spawner.name
        spawner.default_url = "/formgrader/manage_assignments"
        spawner.mem_guarantee, spawner.mem_limit, spawner.cpu_guarantee = "2G", "8G", 1
        spawner.extra_labels = {**spawner.extra_labels, "passlab": "instructor"}  # cluster.yaml lets it reach workers
        # Names for the owners of submissions, by which collecting goes; and the results, kept with the home folder.
        spawner.volumes = [*spawner.volumes, {"name": "people", "configMap": {"name": "passlab-people"}}]
        spawner.volumes += [{"name": "cluster", "secret": {"secretName": "passlab-cluster", "optional": True}}]
        spawner.volume_mounts = [
            *spawner.volume_mounts,
            {"name": "home", "subPath": "run", "mountPath": "/opt/passlab/autograder/run"},
            {"name": "people", "subPath": "passwd", "mountPath": "/etc/passwd", "readOnly": True},
            {"name": "cluster", "mountPath": "/opt/passlab/autograder/run/cluster", "readOnly": True},
        ]
    else:
        spawner.uid, section = people[name]["uid"], people[name]["section"]
    own = course(section)
    spawner.gid = spawner.uid
    spawner.init_containers = [places(spawner.image, spawner.uid, own)]
    # Of the exchange, only the section's part is there.
    spawner.volume_mounts = [
        *spawner.volume_mounts,
        {"name": "exchange", "subPath": own, "mountPath": f"/exchange/{own}"},
    ]
    spawner.environment = {**spawner.environment, "PASSLAB_COURSE_ID": own}


c.KubeSpawner.pre_spawn_hook = prepare  # noqa: F821
c.KubeSpawner.container_security_context = CONFINED  # noqa: F821
c.Authenticator.allowed_users = {*people, instructor}  # noqa: F821
c.Authenticator.admin_users = {instructor}  # noqa: F821
# 0 would set no limit.
c.JupyterHub.named_server_limit_per_user = lambda handler: 9 if handler.current_user.name == instructor else 1  # noqa: F821
