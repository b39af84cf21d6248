"""The examples of the reference for integrators, run as they are printed."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.processes import Installation, eventually

pytestmark = pytest.mark.any_server

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "integrators.tr.md"
PRINTED = "e-Fatura\nurn:mail:pk@isik.tr\n864387\n0000864387\n"
USER = """<User><Identifier>1234567890</Identifier><Title>IŞIK A.Ş.</Title><Type>OZEL</Type>
<FirstCreationTime>2019-05-01T10:00:00</FirstCreationTime><Documents>{documents}</Documents></User>"""
DOCUMENT = """<Document type="Invoice"><Alias><Name>urn:mail:pk@isik.tr</Name>
<CreationTime>2019-05-01T10:00:00</CreationTime></Alias></Document>"""
PROJECT = """<Project Sdk="Microsoft.NET.Sdk"><PropertyGroup><OutputType>Exe</OutputType>
<TargetFramework>net{version}</TargetFramework><ImplicitUsings>enable</ImplicitUsings>
<Nullable>enable</Nullable></PropertyGroup></Project>"""


def _example(language: str) -> str:
    text = PAGE.read_text("utf-8")
    (code,) = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return str(code)


@dataclass(frozen=True)
class Served:
    installation: Installation
    key: str


@pytest.fixture
def served(hosted: Installation, tmp_path: Path) -> Served:
    """A server with one taxpayer, its key, and a list of customers."""
    lists = tmp_path / "list.xml"
    lists.write_text(f"<UserList>{USER.format(documents=DOCUMENT)}</UserList>", "utf-8")
    synced = hosted.call("gib", "sync", "--pk", str(lists), "--gb", str(lists))
    assert synced.returncode == 0, synced.stderr
    (tmp_path / "customers.csv").write_text("Ad;VKN\nIŞIK;1234567890\n", "utf-8")
    key = hosted.call("keys", "create", "example").stdout.strip()
    hosted.start("serve")
    eventually(hosted.ready, "it serves")
    return Served(hosted, key)


def _run(served: Served, folder: Path, *command: str, code: str | None = None) -> str:
    environ = {**os.environ, "API_URL": served.installation.address, "API_KEY": served.key}
    done = subprocess.run(
        command, input=code, env=environ, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_examples_print_what_the_page_says(served: Served, tmp_path: Path) -> None:
    python = _run(served, tmp_path, sys.executable, "-", code=_example("python"))
    assert python == PRINTED
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    assert _run(served, tmp_path, "bash", "-e", code=_example("bash")) == PRINTED
    assert "urn:mail:pk@isik.tr" in (tmp_path / "checked.csv").read_text("utf-8-sig")


@pytest.mark.skipif(shutil.which("php") is None, reason="no PHP on this machine")
def test_the_php_example(served: Served, tmp_path: Path) -> None:
    assert _run(served, tmp_path, "php", code=_example("php")) == PRINTED


@pytest.mark.skipif(shutil.which("dotnet") is None, reason="no .NET SDK on this machine")
def test_the_csharp_example(served: Served, tmp_path: Path) -> None:
    folder = tmp_path / "example"
    folder.mkdir()
    version = ".".join(_run(served, tmp_path, "dotnet", "--version").split(".")[:2])
    (folder / "example.csproj").write_text(PROJECT.format(version=version))
    (folder / "Program.cs").write_text(_example("csharp"), "utf-8")
    assert _run(served, folder, "dotnet", "run") == PRINTED
