"""The legacy names of this installation: those of the platform and of every installed source."""

from collections.abc import Mapping
from functools import cache

from hasat.settings.legacy import PLATFORM, Inert, LegacyNames, Shape
from hasat.settings.plugins import Plugins, load_plugins


def legacy_names() -> LegacyNames:
    """Return the names of the platform and of every installed source."""
    return _merged(load_plugins())


@cache
def _merged(plugins: Plugins) -> LegacyNames:
    every = [PLATFORM, *(section.legacy for _, section in plugins.sections())]
    environment: dict[str, tuple[str, ...]] = {}
    for one in every:
        for key, names in one.environment.items():
            environment[key] = environment.get(key, ()) + names

    def merged(parts: list[Mapping[str, str]]) -> dict[str, str]:
        return {key: value for part in parts for key, value in part.items()}

    return LegacyNames(
        environment,
        variable_names=merged([one.variable_names for one in every]),
        variable_defaults=merged([one.variable_defaults for one in every]),
        files=tuple(file for one in every for file in one.files),
        file_variables=merged([one.file_variables for one in every]),
        retired=merged([one.retired for one in every]),
        retired_files=merged([one.retired_files for one in every]),
        retired_job_types=merged([one.retired_job_types for one in every]),
    )


def legacy_shape(name: str) -> Shape:
    """Return the keys of a legacy file; empty if no such file is declared."""
    return {
        key: target
        for file in legacy_names().files
        if file.name == name
        for key, target in file.shape.items()
    }


def dotnet_sections() -> Shape:
    """Return the .NET service's appsettings as keys of a file."""
    names = legacy_names()
    shape: dict[str, object] = {"Authentication": {"Clients": "authentication.clients"}}
    for name, because in names.retired.items():
        if name.endswith("__*"):
            shape[name.removesuffix("__*")] = Inert(because)
    for key, aliases in names.environment.items():
        for name in aliases:
            *branches, last = name.split("__")
            if not branches or last == "*":
                continue
            level = shape
            for branch in branches:
                level = level.setdefault(branch, {})  # type: ignore[assignment]
            level[last] = key
    return shape  # type: ignore[return-value]


def retired(name: str) -> str | None:
    """Return why a retired variable has no effect, None for others."""
    folded = name.replace(":", "__").casefold()
    for known, sentence in legacy_names().retired.items():
        whole = known.casefold()
        if folded == whole or (whole.endswith("__*") and folded.startswith(whole[:-1])):
            return sentence
    return None
