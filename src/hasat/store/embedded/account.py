"""The operating-system user of the embedded server; PostgreSQL refuses to run as root."""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from hasat.errors import DatabaseError
from hasat.messages import msg

_PREFERRED = ("hasat", "postgres", "nobody")


class SwitchUser(TypedDict, total=False):
    """The part of a subprocess call that changes the user."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True)
class Account:
    """A user of this machine."""

    name: str
    uid: int
    gid: int

    @property
    def foreign(self) -> bool:
        """Return whether this process runs as another user."""
        return self.uid != os.geteuid()

    def switch(self) -> SwitchUser:
        if not self.foreign:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def may_write(self, folder: Path) -> bool:
        """Return whether the user can reach the folder and write to it."""
        if not self.foreign:
            return os.access(folder, os.W_OK | os.X_OK)
        test = ["/bin/sh", "-c", '[ -w "$1" ] && [ -x "$1" ]', "sh", str(folder)]
        return subprocess.run(test, cwd="/", **self.switch()).returncode == 0


def server_account(data: Path) -> Account:
    """Return the owner of the data folder; for a new one, an unprivileged user."""
    me = os.geteuid()
    owner = data.stat().st_uid if data.exists() else None
    if me != 0:
        if owner is not None and owner != me:
            raise DatabaseError(
                msg(
                    "The database folder {data} belongs to {owner}, but Hasat runs as {me}.",
                    data=data,
                    owner=_name(owner),
                    me=_name(me),
                ),
                remedy=msg(
                    "Run Hasat as {owner}, or choose another folder with HASAT_HOME.",
                    owner=_name(owner),
                ),
            )
        return Account(_name(me), me, os.getegid())
    if owner == 0:
        raise DatabaseError(
            msg(
                "The database folder {data} belongs to root, and PostgreSQL refuses to "
                "run as root.",
                data=data,
            ),
            remedy=msg(
                "Give it to an ordinary user, for example: chown -R postgres '{data}'", data=data
            ),
        )
    if owner is not None:
        return Account(_name(owner), owner, data.stat().st_gid)
    for name in _PREFERRED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    raise DatabaseError(
        msg("PostgreSQL refuses to run as root, and there is no user hasat, postgres or nobody."),
        remedy=msg("Create one (useradd --system hasat), or run Hasat as an ordinary user."),
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user number {uid}"
