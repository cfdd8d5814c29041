"""Checks a compose file and Kubernetes manifests, and prints what they start of the aggregator as one JSON object.

    deployment.py FOLDER ADDRESS

FOLDER has `compose/` and `kubernetes/`, and ADDRESS is what `.env` has beside the compose file. Of each of the two, `commands` are the
arguments of the containers, with all variables replaced, and `run` is the configuration. A mistake ends it with a traceback.
"""

import json
import pathlib
import re
import sys
from collections.abc import Iterator

import compose_spec
import kubernetes_validate
import yaml

# The oldest release of Kubernetes that the manifests are for, and the newest that the checker knows.
VERSIONS = ("1.25", kubernetes_validate.latest_version())
PROGRAM = "aggregator"
PASSWORD = "a password"


class Once(yaml.SafeLoader):
    """Refuses a key that a mapping has twice, as kubectl and compose do."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        """The mapping."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: a key is there twice: {keys}"
        return super().construct_mapping(node, deep)


def compose(folder: pathlib.Path, address: str) -> dict:
    """What the compose file starts."""
    variables = {"ADDRESS": address, "PGPASSWORD": PASSWORD}
    text = (folder / "compose.yaml").read_text()
    text = re.sub(r"\$\{(\w+)(:\?[^}]*)?\}", lambda found: variables[found[1]], text)
    file = yaml.load(text, Once)
    # Without anchors and merges, which the checker does not know.
    compose_spec.PyCompose.from_yaml(yaml.safe_dump(file)).validate()
    services, commands = file["services"], {}
    used = [mounts(service) for service in services.values()]
    assert {source for volumes in used for source in volumes if source[0] != "."} == set(file["volumes"])
    for name, service in services.items():
        if PROGRAM not in service["image"]:
            continue
        assert service["environment"] == {"PGPASSWORD": PASSWORD}, name
        assert service["read_only"] and service["init"] and service["cap_drop"] == ["ALL"], name
        own = mounts(service)
        assert own["./run.toml"] == "/run.toml" and own[name] == "/runs", own
        # Where the key comes from.
        assert mounts(services["key"])[name] == f"/{name}"
        commands[name] = service["command"]
    assert services["postgres"]["environment"]["POSTGRES_PASSWORD"] == PASSWORD
    return {"commands": commands, "run": (folder / "run.toml").read_text()}


def mounts(service: dict) -> dict[str, str]:
    """Where a service has what, by its source."""
    return dict(mount.split(":")[:2] for mount in service.get("volumes", []))


def kubernetes(folder: pathlib.Path) -> dict:
    """What the manifests start."""
    found = {}
    for file in sorted(folder.rglob("*.yaml")):
        for manifest in yaml.load_all(file.read_text(), Once):
            for version in VERSIONS:
                kubernetes_validate.validate(manifest, version, strict=True)
            place = (manifest["kind"], manifest["metadata"]["name"])
            assert place not in found, f"{place} is there twice"
            found[place] = manifest
    commands = {}
    pods = [("results", found["Pod", "results"]["spec"], [])]
    for (kind, name), manifest in found.items():
        if kind == "StatefulSet":
            spec = manifest["spec"]
            assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
            assert ("Service", spec["serviceName"]) in found, name
            pods.append((name, spec["template"]["spec"], spec["volumeClaimTemplates"]))
    for name, pod, claims in pods:
        check_pod(name, pod, claims)
        for container in pod.get("initContainers", []) + pod["containers"]:
            of = dict(values(found, container))
            if PROGRAM in container["image"]:
                commands[f"{name}-{container['name']}"] = [with_variables(text, of) for text in container["args"]]
    check_services(found)
    run = found["ConfigMap", "run"]["data"]["run.toml"]
    return {"commands": commands, "run": run}


def check_pod(name: str, pod: dict, claims: list) -> None:
    """Its user is not root, and its containers mount what it has."""
    security = pod["securityContext"]
    assert security["runAsNonRoot"] and security["runAsUser"] == security["runAsGroup"] == security["fsGroup"], name
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
    volumes = {volume["name"] for volume in pod.get("volumes", [])} | {claim["metadata"]["name"] for claim in claims}
    mounted = set()
    for container in pod.get("initContainers", []) + pod["containers"]:
        confined = {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["securityContext"] == confined, (name, container["name"])
        assert container["resources"]["limits"]["memory"], (name, container["name"])
        mounted |= {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == volumes, (name, mounted, volumes)


def values(found: dict, container: dict) -> Iterator[tuple[str, str]]:
    """The variables of a container; what they refer to is there."""
    for variable in container.get("env", []):
        match variable:
            case {"value": value}:
                pass
            case {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}:
                value = "aggregator-0"
            case {"valueFrom": {"configMapKeyRef": {"name": name, "key": key}}}:
                value = found["ConfigMap", name]["data"][key]
            case {"valueFrom": {"secretKeyRef": {"name": name, "key": key}}}:
                value = found["Secret", name]["stringData"][key]
        yield variable["name"], value


def with_variables(text: str, of: dict[str, str]) -> str:
    """An argument as Kubernetes gives it to the program."""
    return re.sub(r"\$\((\w+)\)", lambda name: of[name[1]], text)


def check_services(found: dict) -> None:
    """Services and the budget select pods that there are, and ports that these have."""
    servers = found["StatefulSet", PROGRAM]["spec"]
    template = servers["template"]
    names = [f"{PROGRAM}-{number}" for number in range(servers["replicas"])]
    assert found["PodDisruptionBudget", PROGRAM]["spec"]["selector"] == servers["selector"]
    sets = [manifest["spec"] for (kind, _), manifest in found.items() if kind == "StatefulSet"]
    of_one = []
    for (kind, name), manifest in found.items():
        if kind != "Service":
            continue
        selector = manifest["spec"]["selector"]
        if pod := selector.get("statefulset.kubernetes.io/pod-name"):
            assert pod == name
            of_one.append(pod)
            chosen = template
        else:
            (chosen,) = (spec["template"] for spec in sets if selector == spec["selector"]["matchLabels"])
        ports = [port for container in chosen["spec"]["containers"] for port in container.get("ports", [])]
        known = {(port["name"], port["containerPort"], port["protocol"]) for port in ports}
        assert {(port["name"], port["port"], port["protocol"]) for port in manifest["spec"]["ports"]} <= known, name
    assert sorted(of_one) == names
    (server,) = (container for container in template["spec"]["containers"] if container["name"] == PROGRAM)
    told = ",".join(f"{name}.$(DOMAIN):4433" for name in names)
    assert f"--also-at={told}" in server["args"]


if __name__ == "__main__":
    packaging = pathlib.Path(sys.argv[1])
    parts = {"compose": compose(packaging / "compose", sys.argv[2]), "kubernetes": kubernetes(packaging / "kubernetes")}
    print(json.dumps(parts))
