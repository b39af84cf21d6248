"""The name of this machine among those that share a database."""

import os
import platform
import secrets
from pathlib import Path


def machine_of(home: Path) -> str:
    """Return the machine's name: its host name and a random part, stored in HASAT_HOME.

    It belongs to the folder, so that a container that is replaced but retains its volume is still
    the same machine.
    """
    file = home / "machine"
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        pass
    home.mkdir(parents=True, exist_ok=True)
    draft = home / f".machine-{secrets.token_hex(8)}"
    draft.touch(0o600)
    draft.write_text(f"{platform.node() or 'unnamed'}-{secrets.token_hex(4)}", "utf-8")
    try:
        # Unlike a rename, a link never replaces the name that another process has just written.
        os.link(draft, file)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return file.read_text("utf-8")
