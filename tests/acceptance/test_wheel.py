"""The sdist builds and tests itself; its wheel runs without the extras, outside any checkout."""

import inspect
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.clean_environment import PROJECT, build_sdist, build_wheel, make_environment, run
from support.processes import Installation, eventually

pytestmark = pytest.mark.xdist_group("wheel")

LEFT_OUT = ("shapely", "pyogrio", "pyproj", "PIL", "nats", "mcp", "obstore", "opentelemetry.sdk")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sdist(PROJECT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def programs(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and what it requires without extras."""
    folder = tmp_path_factory.mktemp("core")
    return make_environment(folder / "opt", build_wheel(unpacked, folder), whole=False)


@pytest.fixture
def core(programs: Path, installation: Installation) -> Installation:
    installation.program = [str(programs / "hasat")]
    # Nothing of the checkout or of this environment.
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        installation.environ.pop(name, None)
    return installation


def test_the_sdist_has_every_file_and_passes_its_tests(unpacked: Path) -> None:
    if (PROJECT / ".git").exists() and shutil.which("git"):
        tracked = set(run("git", "ls-files", cwd=PROJECT).splitlines())
        absent = {name for name in tracked if not (unpacked / name).exists()}
        assert {name for name in absent if not name.startswith(".ci/")} == set()
    shutil.copytree(unpacked, copy := unpacked.parent / "copy", dirs_exist_ok=True)
    quick = ("tests/unit/test_pins.py", "tests/unit/test_text.py", "tests/unit/test_build.py")
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    tested = run(
        sys.executable, "-m", "pytest", *options, *quick, cwd=copy, PYTHONPATH=str(copy / "src")
    )
    assert " passed" in tested


def test_the_core_runs_the_demo_without_the_extras(core: Installation, programs: Path) -> None:
    found = f"from importlib.util import find_spec; print([n for n in {LEFT_OUT} if find_spec(n)])"
    assert run(str(programs / "python"), "-c", found).strip() == "[]"
    demo = core.start("demo")
    eventually(lambda: "What to look at" in core.output(), "it says what to look at")

    def has(dataset: str, least: int) -> bool:
        response = core.get(f"/api/v1/{dataset}/digest")
        return response is not None and response.is_success and response.json()["count"] >= least

    for dataset, least in (("einvoice", 3_500), ("fixtures", 300)):
        eventually(lambda d=dataset, n=least: has(d, n), f"{dataset} come in")
    for path, status in (("/", 200), ("/taxpayers", 200), ("/parcels", 404), ("/mcp", 501)):
        response = eventually(lambda at=path: core.get(at), f"{path} responds")
        assert response.status_code == status, path
    demo.send_signal(signal.SIGINT)
    assert demo.wait(60) == 0
    assert "Traceback" not in core.output()


def test_the_core_names_the_extra_that_something_needs(
    core: Installation, server_url: str, tmp_path: Path
) -> None:
    core.environ["HASAT_DATABASE_URL"] = server_url
    (workers := tmp_path / "workers.json").write_text('{"workers": ["http://127.0.0.1:9/"]}')
    core.environ["HASAT_TKGM_WORKERS_FILE"] = str(workers)
    findings = json.loads(core.call("doctor", "--json").stdout)
    extras = {one["message"]: one for one in findings if one["check"] == "extras"}
    needed = extras["tkgm needs the extra gis, which is not installed."]
    assert needed["grade"] == "warning"
    assert "pip install 'hasat[gis]'" in needed["remedy"]
    assert any(message.startswith("Not installed: gis (") for message in extras)

    for arguments in (("tkgm", "parcel", "29", "41"), ("mcp",)):
        assert_refused(core.call(*arguments), {"tkgm": "gis", "mcp": "mcp"}[arguments[0]])
    core.environ["HASAT_NATS_URL"] = "nats://127.0.0.1:9"
    assert_refused(core.call("worker"), "nats")
    del core.environ["HASAT_NATS_URL"]
    core.environ |= {"HASAT_ARCHIVES_PROVIDER": "S3", "HASAT_ARCHIVES_BUCKET_NAME": "archives"}
    assert_refused(core.call("serve"), "s3")


def assert_refused(done: "subprocess.CompletedProcess[str]", extra: str) -> None:
    assert done.returncode == 1
    assert f"needs the extra {extra}, which is not installed." in done.stderr
    assert f"pip install 'hasat[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_client_is_a_package_that_needs_nothing_of_the_server(
    tmp_path: Path, hosted: Installation
) -> None:
    wheel = build_wheel(PROJECT / "clients/python", tmp_path)
    programs = make_environment(tmp_path / "opt", wheel, whole=False)
    hosted.start("serve")
    eventually(hosted.ready, "it serves")
    script = """
        import sys
        from hasat_client import Client, UnavailableError
        with Client(sys.argv[1], retries=0) as client:
            try:
                client.digest("einvoice")
            except UnavailableError as error:
                print(error.code)
        found = {name.partition(".")[0] for name in sys.modules}
        print(sorted(found & {"hasat", "fastapi", "psycopg", "pyarrow", "pydantic", "numpy"}))
    """
    python = str(programs / "python")
    printed = run(python, "-c", inspect.cleandoc(script), hosted.address)
    assert printed.split() == ["unavailable", "[]"]
