"""The manifests for Kubernetes agree with the product, and kustomize builds them."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hasat.settings.platform_sections import Jobs, Serve
from hasat.settings.tree import leaves
from support.documented_commands import command_error

DEPLOY = Path(__file__).parents[3] / "deploy"
FOLDER = DEPLOY / "kubernetes"
SETTINGS = {name for leaf in leaves().values() for name in leaf.names}


def load(name: str) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all((FOLDER / name).read_text("utf-8"))]


KUSTOMIZATION = load("kustomization.yaml")[0]
OBJECTS = [one for name in KUSTOMIZATION["resources"] for one in load(name)]


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for one in OBJECTS:
        if "template" in one.get("spec", {}):
            yield one["metadata"]["name"], one["spec"]["template"]["spec"]


PODS = dict(pods())


def test_every_file_is_part_of_the_kustomization() -> None:
    files = {file.name for file in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == {*KUSTOMIZATION["resources"]}
    assert {*PODS} == {"hasat-migrate", "hasat-serve", "hasat-worker"}


@pytest.mark.parametrize("name", PODS)
def test_a_pod_runs_a_command_that_exists_without_privileges(name: str) -> None:
    pod = PODS[name]
    [container] = pod["containers"]
    assert command_error(container["args"]) is None
    assert container["image"] == KUSTOMIZATION["images"][0]["name"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    containerfile = (DEPLOY / "Containerfile").read_text("utf-8")
    assert f"--uid {pod['securityContext']['runAsUser']} " in containerfile
    assert pod["automountServiceAccountToken"] is False
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    # What the image writes to.
    mounted = {one["mountPath"] for one in container["volumeMounts"]}
    assert mounted == {"/var/lib/hasat", "/tmp"}
    assert {one["name"] for one in pod["volumes"]} == {
        one["name"] for one in container["volumeMounts"]
    }


def test_settings_exist() -> None:
    [made] = KUSTOMIZATION["configMapGenerator"]
    assert {one.partition("=")[0] for one in made["literals"]} <= SETTINGS
    for pod in PODS.values():
        named = {next(iter(one.values()))["name"] for one in pod["containers"][0]["envFrom"]}
        assert named == {made["name"], "hasat"}


def test_probes_ask_paths_that_exist_on_the_port_that_is_served() -> None:
    [serve] = PODS["hasat-serve"]["containers"]
    [port] = serve["ports"]
    assert port["containerPort"] == Serve().port
    assert serve["args"][-1] == str(Serve().port)
    for probe, path in (
        ("startup", "/healthz"),
        ("liveness", "/healthz"),
        ("readiness", "/readyz"),
    ):
        asked = serve[f"{probe}Probe"]["httpGet"]
        assert (asked["path"], asked["port"]) == (path, port["name"])
        # Kubernetes asks by the address of the pod, which allowed_hosts need not contain.
        assert asked["httpHeaders"] == [{"name": "Host", "value": "127.0.0.1"}]
    [service] = [one for one in OBJECTS if one["kind"] == "Service"]
    deployments = [one for one in OBJECTS if one["kind"] == "Deployment"]
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in deployments]
    assert service["spec"]["selector"] in labels
    for one in deployments:
        assert one["spec"]["selector"]["matchLabels"] in labels


def test_a_worker_may_finish_its_runs() -> None:
    assert PODS["hasat-worker"]["terminationGracePeriodSeconds"] > Jobs().drain_seconds


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on this machine")
def test_kustomize_builds_the_manifests() -> None:
    built = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, check=True
    )
    made = [*yaml.safe_load_all(built.stdout)]
    kinds = sorted(one["kind"] for one in made)
    expected = ["ConfigMap", "Deployment", "Deployment", "Job", "PodDisruptionBudget", "Service"]
    assert kinds == expected
    [settings] = [one["metadata"]["name"] for one in made if one["kind"] == "ConfigMap"]
    for one in made:
        if one["kind"] == "Deployment":
            [container] = one["spec"]["template"]["spec"]["containers"]
            assert container["envFrom"][0]["configMapRef"]["name"] == settings
            assert container["image"].startswith("registry.example/hasat:")
