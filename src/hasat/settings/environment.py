"""Settings from the environment, by Hasat's own names and those of the original systems."""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from hasat.messages import msg
from hasat.settings.aliases import legacy_names, retired
from hasat.settings.dsn import compose_url
from hasat.settings.legacy import CLIENTS, POSTGRES, client_field
from hasat.settings.plugins import load_plugins
from hasat.settings.tree import leaves, parse_value
from hasat.settings.values import Findings, Given, Origin, did_you_mean

# Not settings: the pipe between `hasat up` and its children, and variables of the tests.
_NO_SETTINGS = (
    "HASAT_LANG",
    "HASAT_PARENT_FD",
    "HASAT_LISTENING_FD",
    "HASAT_CHROMIUM",
    "HASAT_TEST_",
)

_POSTGRES_PARTS = {
    "host": "POSTGRES_HOST",
    "port": "POSTGRES_PORT",
    "user": "POSTGRES_USER",
    "password": "POSTGRES_PASSWORD",
    "database": "POSTGRES_DB",
}
_CLIENT = re.compile(r"authentication:clients:(\d+):(accesskey|secretkey|name|perminute)")
_NOTIFY_ON = re.compile(r"webhooks:(slack|http):notifyon:(\d+)")


def environment_layer(
    environ: Mapping[str, str], named: Mapping[str, str], cwd: Path, found: Findings
) -> dict[str, Given]:
    """Return the values in the environment; `named` has variables that other settings name."""
    variables = _Variables(environ, found)
    values: dict[str, Given] = {}
    for leaf in leaves().values():
        names = list(leaf.names)
        if leaf.key in named:
            names.insert(1, named[leaf.key])
        for name in names:
            value = variables.secret(name) if leaf.secret else variables.text(name)
            if value is not None:
                given = Given(value, Origin("environment", variables.original_name(name)), cwd)
                values |= parse_value(leaf, given, found)
                break
    _report_unknown(variables, set(named.values()), found)
    return values


class _Variables:
    """The environment by name; those of the .NET service in any case and with either separator."""

    def __init__(self, environ: Mapping[str, str], found: Findings) -> None:
        self._found = found
        self.texts = {name: text.strip() for name, text in environ.items() if text.strip()}
        self._folded = {fold(name): name for name in self.texts if fold(name)}
        self._put_together: dict[str, Callable[[], Any]] = {
            POSTGRES: self._postgres,
            CLIENTS: self._clients,
            "Webhooks__Slack__NotifyOn__*": lambda: self._events("slack"),
            "Webhooks__Http__NotifyOn__*": lambda: self._events("http"),
        }

    def original_name(self, name: str) -> str:
        """Return a name as it is written in the environment."""
        for known in (name, f"{name}_FILE"):
            if known in self.texts or known in self._put_together:
                return known
            if found := self._folded.get(fold(known)):
                return found
        return name

    def text(self, name: str) -> Any:
        """Return the value of a variable, None if it is not set or empty."""
        if name in self._put_together:
            return self._put_together[name]()
        return self.texts.get(name) or self.texts.get(self._folded.get(fold(name), ""))

    def secret(self, name: str) -> Any:
        """Return a secret, which may also be in the file that NAME_FILE names."""
        value, path = self.text(name), self.text(f"{name}_FILE")
        if path is None:
            return value
        if value is not None:
            self._found.problems.append(
                msg("{name} and {name}_FILE are both set; keep one.", name=name)
            )
            return value
        try:
            value = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else msg("it is not text")
            self._found.problems.append(
                msg(
                    "{name}_FILE names {path}, which cannot be read: {reason}.",
                    name=name,
                    path=path,
                    reason=reason,
                )
            )
            return None
        if not value:
            self._found.problems.append(
                msg("{name}_FILE names {path}, which is empty.", name=name, path=path)
            )
        return value or None

    def _postgres(self) -> str | None:
        if self.text(_POSTGRES_PARTS["host"]) is None:
            if names := [name for name in _POSTGRES_PARTS.values() if name in self.texts]:
                self._found.remarks.append(
                    msg(
                        "POSTGRES_HOST is not set, so these have no effect: {names}.",
                        names=", ".join(names),
                    )
                )
            return None
        parts = {part: self.secret(name) for part, name in _POSTGRES_PARTS.items()}
        defaults = legacy_names().variable_defaults
        return compose_url(
            {part: parts[part] or defaults.get(name, "") for part, name in _POSTGRES_PARTS.items()}
        )

    def _clients(self) -> list[dict[str, Any]] | None:
        clients: dict[int, dict[str, Any]] = {}
        for folded, name in self._folded.items():
            if match := _CLIENT.fullmatch(folded.removesuffix("_file")):
                part = name[: -len("_file")] if folded.endswith("_file") else name
                clients.setdefault(int(match[1]), {})[client_field(match[2])] = self.secret(part)
        return [clients[index] for index in sorted(clients)] or None

    def _events(self, channel: str) -> list[str] | None:
        events = {
            int(match[2]): self.texts[name]
            for folded, name in self._folded.items()
            if (match := _NOTIFY_ON.fullmatch(folded)) and match[1] == channel
        }
        return [events[index] for index in sorted(events)] or None


def _report_unknown(variables: _Variables, known: set[str], found: Findings) -> None:
    """Report unknown names: a problem for `HASAT_*`, a remark for those of the originals."""
    for leaf in leaves().values():
        known |= set(leaf.names)
        if leaf.secret:
            known |= {f"{name}_FILE" for name in leaf.names}
    own = [name for name in known if name.startswith("HASAT_")]
    dotnet = _dotnet_names()
    branches = {name.partition(":")[0] for name in dotnet}
    for name in sorted(variables.texts.keys() - known):
        folded = fold(name).removesuffix("_file")
        if name.startswith("HASAT_"):
            if unusable := _broken_source(name):
                found.remarks.append(
                    msg(
                        "{name} has no effect: the source {source} cannot be loaded.",
                        name=name,
                        source=unusable,
                    )
                )
            elif not name.startswith(_NO_SETTINGS):
                found.problems.append(
                    msg(
                        "{name}: there is no such setting{meant}",
                        name=name,
                        meant=did_you_mean(name, own),
                    )
                )
        elif because := retired(name):
            found.remarks.append(msg("{name} has no effect: {because}", name=name, because=because))
        elif folded.partition(":")[0] in branches and not _is_part(folded, dotnet):
            meant = did_you_mean(name, dotnet.values())
            # A mistake in authentication must not leave access open.
            is_serious = folded.startswith("authentication:")
            (found.problems if is_serious else found.remarks).append(
                msg("{name} has no effect: there is no such setting{meant}", name=name, meant=meant)
            )


def _broken_source(variable: str) -> str | None:
    """Return the source that the variable is meant for, if that source cannot be loaded."""
    for source in load_plugins().broken:
        if variable.startswith(f"HASAT_{source.name.upper()}_"):
            return source.name
    return None


def without_settings(environ: Mapping[str, str], keep: Collection[str] = ()) -> dict[str, str]:
    """Return the environment without any settings, for processes that must not inherit them."""
    known = {name for leaf in leaves().values() for name in leaf.names}
    known |= {f"{name}_FILE" for name in known} | set(_POSTGRES_PARTS.values())
    branches = {name.partition(":")[0] for name in _dotnet_names()}

    def sets_something(name: str) -> bool:
        if name.startswith("HASAT_"):
            return not name.startswith(_NO_SETTINGS)
        return name in known or fold(name).partition(":")[0] in branches

    return {k: v for k, v in environ.items() if k in keep or not sets_something(k)}


def _dotnet_names() -> dict[str, str]:
    return {
        fold(name): name
        for names in legacy_names().environment.values()
        for name in names
        if "__" in name
    }


def _is_part(folded: str, dotnet: Mapping[str, str]) -> bool:
    return bool(folded in dotnet or _CLIENT.fullmatch(folded) or _NOTIFY_ON.fullmatch(folded))


def fold(name: str) -> str:
    """Return the normalised form of a .NET name; empty for names without parts."""
    folded = name.replace("__", ":").casefold()
    return folded if ":" in folded.strip(":") else ""
