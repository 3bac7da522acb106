"""A class on Kubernetes: the values for Zero to JupyterHub, the pods that they make, and the manifests for grading.

With kubernetes-validate and jupyterhub-kubespawner installed, the pods are made by KubeSpawner, and all is checked
against Kubernetes' own schemas.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from types import SimpleNamespace

import pytest
import yaml

from autograder.authoring.source import ROOT
from autograder.hub import people
from autograder.hub.accounts import Refused
from autograder.toys import hubs

FOLDER = ROOT / "autograder/hub/kubernetes"
VALUES = yaml.safe_load((FOLDER / "values.yaml").read_text())
MANIFESTS = ("storage.yaml", "cluster.yaml", "grading.yaml")
PEOPLE = people.enter([("ada", ""), ("bob", "evening")], "grace", {})["custom"]

# The keys of the chart's values.schema.yaml, as far as they are used here, with their types. "any" takes any content.
_IMAGE = {"name": str, "tag": str, "pullPolicy": str, "pullSecrets": list}
_RULES = "cloudMetadataServer dnsPortsCloudMetadataServer dnsPortsKubeSystemNamespace dnsPortsPrivateIPs"
_RULES += " nonPrivateIPs privateIPs"
_POLICY = {"enabled": bool, "ingress": list, "egress": list, "egressAllowRules": dict.fromkeys(_RULES.split(), bool)}
SCHEMA = {
    "hub": {"allowNamedServers": bool, "config": "any", "extraConfig": "any", "extraEnv": "any"},
    "singleuser": {
        "image": _IMAGE,
        "cmd": (list, str, None),
        "defaultUrl": (str, None),
        "startTimeout": (int, None),
        "uid": (int, None),
        "fsGid": (int, None),
        "allowPrivilegeEscalation": (bool, None),
        "serviceAccountName": (str, None),
        "memory": {"guarantee": (int, str, None), "limit": (int, str, None)},
        "cpu": {"guarantee": (int, float, None), "limit": (int, float, None)},
        "extraEnv": "any",
        "storage": {
            "type": ("dynamic", "static", "none"),
            "capacity": (str, None),
            "homeMountPath": str,
            "dynamic": {"pvcNameTemplate": str, "volumeNameTemplate": str, "storageAccessModes": list},
            "extraVolumes": list,
            "extraVolumeMounts": list,
        },
        "networkPolicy": _POLICY,
        "cloudMetadata": {"blockWithIptables": bool, "ip": str},
    },
    "prePuller": {"extraImages": "any", "hook": "any", "continuous": "any"},
    "cull": {
        "enabled": bool,
        "users": bool,
        "adminUsers": bool,
        "removeNamedServers": bool,
        "timeout": int,
        "every": int,
    },
    "proxy": {"service": {"type": ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")}, "https": "any"},
    "ingress": {"enabled": bool, "annotations": "any", "ingressClassName": str, "hosts": list, "tls": list},
    "custom": "any",
}


def misfits(values, schema, at="") -> list[str]:
    """Return what a schema does not have, or has as another type."""
    if schema == "any":
        return []
    if isinstance(schema, dict):
        unknown = [f"{at}.{key}" for key in values if key not in schema]
        inside = [misfits(value, schema[key], f"{at}.{key}") for key, value in values.items() if key in schema]
        return unknown + [line for lines in inside for line in lines]
    kinds = schema if isinstance(schema, tuple) else (schema,)
    fits = any(value_fits(values, kind) for kind in kinds)
    return [] if fits else [f"{at}: {values!r}"]


def value_fits(value, kind) -> bool:
    if isinstance(kind, type):
        return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    return value == kind


def documents(name: str) -> list[dict]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def pods(name: str) -> list[dict]:
    return [one["spec"]["template"]["spec"] for one in documents(name) if "template" in one["spec"]]


def test_the_values_have_the_keys_of_the_chart():
    assert misfits(VALUES, SCHEMA) == []
    assert misfits({"cull": {"timeot": 3}, "hub": {"allowNamedServers": "yes"}}, SCHEMA) == [
        ".cull.timeot",
        ".hub.allowNamedServers: 'yes'",
    ]


def test_learners_reach_the_hub_and_the_name_service_only():
    policy = VALUES["singleuser"]["networkPolicy"]
    allowed = [name for name, allows in policy["egressAllowRules"].items() if allows]
    assert policy["enabled"] and policy["egress"] == [] and allowed == ["dnsPortsKubeSystemNamespace"]
    assert set(policy["egressAllowRules"]) == set(_RULES.split())  # the chart allows what is not named


@pytest.mark.parametrize("name", MANIFESTS)
def test_containers_write_to_volumes_only_and_become_no_one_else(name):
    for pod in pods(name):
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            own = container["securityContext"]
            user = own.get("runAsUser", pod.get("securityContext", {}).get("runAsUser"))
            assert own["readOnlyRootFilesystem"] and own["allowPrivilegeEscalation"] is False, container["name"]
            assert own["capabilities"]["drop"] == ["ALL"] and container["resources"]["limits"]["memory"]
            assert user == 1000
            # Kubernetes refuses an unmasked /proc in the node's user namespace.
            assert own.get("procMount") != "Unmasked" or pod["hostUsers"] is False


def test_graders_run_the_same_command_and_reach_nobody():
    (job,) = pods("grading.yaml")
    assert job["containers"][0]["command"][:2] == ["passlab", "grade"]
    policy = documents("grading.yaml")[-1]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"] and not {"ingress", "egress"} & set(policy)
    commands = [pod["containers"][0]["command"] for pod in pods("cluster.yaml")]
    assert [command[:2] for command in commands] == [["passlab", "cluster"]] * 2
    service = documents("cluster.yaml")[0]
    address = f"tls://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert commands[1][2] == address and address in (ROOT / "docs/containers.md").read_text()


def test_all_manifests_name_the_same_images():
    images = {c["image"] for name in MANIFESTS for pod in pods(name) for c in pod["containers"]}
    pulled = VALUES["prePuller"]["extraImages"]["instructor"]
    assert images == {VALUES["custom"]["instructorImage"]} == {f"{pulled['name']}:{pulled['tag']}"}


# ── People ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_learners_keep_their_numbers_and_a_number_is_never_given_again():
    first = people.enter([("ada", ""), ("bob", "evening")], "grace", {})
    second = people.enter([("bob", ""), ("cyd", "")], "grace", json.loads(json.dumps(first)))
    third = people.enter([("ada", ""), ("dan", "")], "grace", second)
    numbers = [{name: one["uid"] for name, one in each["custom"]["people"].items()} for each in (first, second, third)]
    assert numbers == [{"ada": 20001, "bob": 20002}, {"bob": 20002, "cyd": 20003}, {"ada": 20001, "dan": 20004}]
    rows = [line.split(":")[:3:2] for line in people.passwd(third).splitlines()]
    assert rows[:2] == [["root", "0"], ["grace", "1000"]]
    assert sorted(rows[2:]) == [["ada", "20001"], ["bob", "20002"], ["cyd", "20003"], ["dan", "20004"]]


@pytest.mark.parametrize("name, section", [("grace", ""), ("root", ""), ("Ada L", ""), ("ada", "a/b"), ("x:0", "")])
def test_a_roster_with_a_name_that_cannot_be_used_is_refused(name, section):
    with pytest.raises(Refused, match=re.escape(section or name)):
        people.enter([(name, section)], "grace", {})


def test_the_command_writes_values_and_names(tmp_path, capsys):
    (tmp_path / "roster.csv").write_text("id,section\nada,\nbob,evening\n")
    people.main([str(tmp_path / "roster.csv"), str(tmp_path / "out"), "grace"])
    assert json.loads((tmp_path / "out/people.json").read_text())["custom"] == PEOPLE
    assert "bob:x:20002:20002:" in (tmp_path / "out/passwd").read_text()
    assert capsys.readouterr().out.startswith("2 learners in ")
    (tmp_path / "roster.csv").write_text("id\n../x\n")
    with pytest.raises(SystemExit, match="cannot be a system user"):
        people.main([str(tmp_path / "roster.csv"), str(tmp_path / "out"), "grace"])


# ── Servers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Settings:
    """traitlets' `c`, as far as spawner.py uses it."""

    def __getattr__(self, name):
        self.__dict__[name] = SimpleNamespace()
        return self.__dict__[name]


def settings() -> Settings:
    """Run spawner.py as the chart does, at the end of its own configuration."""
    custom = VALUES["custom"] | PEOPLE
    c = Settings()
    names = {"c": c, "get_config": lambda key, default=None: custom.get(key.removeprefix("custom."), default)}
    exec(compile((FOLDER / "spawner.py").read_text(), "spawner.py", "exec"), names)
    return c


def server(name: str, section: str = "") -> SimpleNamespace:
    """A person's spawner after `prepare`, with the chart's settings before."""
    own = VALUES["singleuser"]
    spawner = SimpleNamespace(user=SimpleNamespace(name=name), name=section, environment=dict(own["extraEnv"]))
    spawner.image, spawner.uid = f"{own['image']['name']}:{own['image']['tag']}", own["uid"]
    spawner.extra_labels = {}
    spawner.volumes = [{"name": "home"}, *own["storage"]["extraVolumes"]]
    spawner.volume_mounts = [{"name": "home", "mountPath": "/home/learner"}, *own["storage"]["extraVolumeMounts"]]
    settings().KubeSpawner.pre_spawn_hook(spawner)
    return spawner


def test_each_learner_is_a_user_of_the_own_section():
    ada, bob = server("ada"), server("bob")
    assert (ada.uid, ada.gid, ada.environment["PASSLAB_COURSE_ID"]) == (20001, 20001, "passlab")
    assert (bob.uid, bob.gid, bob.environment["PASSLAB_COURSE_ID"]) == (20002, 20002, "passlab-evening")
    assert ada.image.endswith("passlab-learner:1") and ada.init_containers[0]["image"] == ada.image
    assert [one["mountPath"] for one in ada.volume_mounts] == [
        "/home/learner",
        "/exchange",
        "/tmp",
        "/exchange/passlab",
    ]
    assert "chown -h 20001:20001 /home/learner" in ada.init_containers[0]["command"][-1]
    exchanges = [one.volume_mounts[-1] for one in (ada, bob)]
    assert [one["subPath"] for one in exchanges] == ["passlab", "passlab-evening"]
    assert ada.environment["MALLOC_ARENA_MAX"] == "1"


def test_a_link_in_a_home_folder_gives_nothing_away(tmp_path):
    """Root gave what it led to, such as the submissions of all, to the learner who had made it."""
    assert hubs.is_root(), "Only root gives files away."
    (inbound := tmp_path / "exchange/passlab/inbound").mkdir(parents=True)
    (tmp_path / "home/learner").mkdir(parents=True)
    (tmp_path / "home/learner/run").symlink_to(inbound)
    *words, script = server("ada").init_containers[0]["command"]
    for path in ("/home", "/exchange"):
        script = script.replace(path, f"{tmp_path}{path}")
    subprocess.run([*words, script], check=True)
    assert (tmp_path / "home/learner").stat().st_uid == 20001 and inbound.stat().st_uid == 0


def test_the_instructors_servers_are_the_sections():
    day, evening = server("grace"), server("grace", "evening")
    assert (day.uid, day.image) == (1000, VALUES["custom"]["instructorImage"])
    assert day.environment["PASSLAB_COURSE_ID"] == "passlab"
    assert evening.environment["PASSLAB_COURSE_ID"] == "passlab-evening"
    assert day.default_url == "/formgrader/manage_assignments"
    places = {one["mountPath"]: one for one in day.volume_mounts}
    assert places["/etc/passwd"]["subPath"] == "passwd" and places["/opt/passlab/autograder/run"]["subPath"] == "run"


def test_only_the_roster_and_the_instructor_log_in():
    c = settings()
    assert c.Authenticator.allowed_users == {"ada", "bob", "grace"} and c.Authenticator.admin_users == {"grace"}
    with pytest.raises(KeyError):
        server("mallory")


# ── Against Kubernetes' schemas ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_manifests_fit_the_schemas_of_kubernetes(name):
    validate = pytest.importorskip("kubernetes_validate").validate
    for document in documents(name):
        if document["kind"] == "Job":  # the schema wants a name where the server makes one
            document["metadata"].setdefault("name", "made-by-the-server")
        validate(document, "1.33", strict=True)


@pytest.mark.parametrize("name", ["ada", "grace"])
def test_the_pods_that_the_hub_makes_fit_them_too(name, monkeypatch):
    validate = pytest.importorskip("kubernetes_validate").validate
    pytest.importorskip("kubespawner")
    monkeypatch.setattr("kubespawner.spawner.load_config", lambda **_: None)  # there is no cluster
    pod = made_pod(name)
    validate(pod, "1.33", strict=True)
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] and container["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["runAsUser"] == (20001 if name == "ada" else 1000)
    assert "fsGroup" not in pod["spec"].get("securityContext", {})
    claimed = [one for one in pod["spec"]["volumes"] if "persistentVolumeClaim" in one]
    claims = {one["name"]: one["persistentVolumeClaim"]["claimName"] for one in claimed}
    assert claims == {"home": f"home-{name}", "exchange": "passlab-exchange"}
    assert pod["spec"]["automountServiceAccountToken"] is False


def made_pod(name: str) -> dict:
    """Return the pod that KubeSpawner makes of the values, which are passed on as the chart's configuration does."""
    from kubernetes_asyncio.client import ApiClient
    from kubespawner import KubeSpawner
    from traitlets.config import Config

    own, c = VALUES["singleuser"], Config()
    custom = VALUES["custom"] | PEOPLE
    c.KubeSpawner.update(
        image=f"{own['image']['name']}:{own['image']['tag']}",
        cmd=own["cmd"],
        default_url=own["defaultUrl"],
        uid=own["uid"],
        fs_gid=own["fsGid"],
        allow_privilege_escalation=own["allowPrivilegeEscalation"],
        mem_guarantee=own["memory"]["guarantee"],
        mem_limit=own["memory"]["limit"],
        cpu_guarantee=own["cpu"]["guarantee"],
        cpu_limit=own["cpu"]["limit"],
        environment=own["extraEnv"],
        pvc_name_template=own["storage"]["dynamic"]["pvcNameTemplate"],
        volumes=[
            {"name": "home", "persistentVolumeClaim": {"claimName": own["storage"]["dynamic"]["pvcNameTemplate"]}},
            *own["storage"]["extraVolumes"],
        ],
        volume_mounts=[
            {"name": "home", "mountPath": own["storage"]["homeMountPath"]},
            *own["storage"]["extraVolumeMounts"],
        ],
    )
    names = {"c": c, "get_config": lambda key, default=None: custom.get(key.removeprefix("custom."), default)}
    exec(compile((FOLDER / "spawner.py").read_text(), "spawner.py", "exec"), names)

    async def make() -> dict:
        user = SimpleNamespace(name=name, url=f"/user/{name}/", escaped_name=name, id=1, last_activity=None)
        hub = SimpleNamespace(public_host="", api_url="http://hub:8081/hub/api", base_url="/hub/")
        spawner = KubeSpawner(config=c, user=user, hub=hub, _mock=True)
        spawner.server = SimpleNamespace(base_url=f"/user/{name}/", port=8888)
        spawner.api_token, spawner.oauth_client_allowed_scopes = "secret", []
        spawner.run_pre_spawn_hook()
        return ApiClient().sanitize_for_serialization(await spawner.get_pod_manifest())

    return asyncio.run(make())
