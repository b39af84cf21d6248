"""Settings from the YAML files of the configuration folder, with their line numbers."""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hasat.messages import Message, join, msg
from hasat.settings.aliases import dotnet_sections, legacy_names, legacy_shape
from hasat.settings.legacy import JOB, Inert, ItemDefault, Refused, Shape, Target, client_field
from hasat.settings.plugins import load_plugins
from hasat.settings.tree import SCHEDULE, leaf_of, leaves, sections
from hasat.settings.values import (
    Findings,
    Given,
    Origin,
    absolute,
    did_you_mean,
    is_file,
    is_folder,
    shown,
)

if TYPE_CHECKING:
    from hasat.settings.yaml_reader import Item

Values = dict[str, Given]


def files_layer(
    folder: Path | None, environ: Mapping[str, str], cwd: Path, found: Findings
) -> tuple[Values, tuple[str, ...]]:
    """Return every value in the files, and the files that were read."""
    values: Values = {}
    sources: dict[str, str] = {}
    read = []
    for name, path in _existing(folder, environ, cwd, found):
        # Imported only if there is a file: PyYAML takes time to load.
        from hasat.settings.yaml_reader import read_yaml

        label = shown(path, cwd)
        item = read_yaml(path, label, found)
        read.append(label)
        if item is not None and not item.unset:
            document = _Document(name, path, label, found)
            document.read(item)
            _add(values, sources, document, found)
    return values, tuple(read)


def tree_shape(prefix: str = "") -> Shape:
    """Return the keys of a file in the form of the tree, from a section down."""
    depth = len(prefix.split(".")) if prefix else 0
    shape: dict[str, Target] = {}
    for key in (*sections(), *leaves()):
        parts = key.split(".")
        if len(parts) == depth + 1 and ".".join(parts[:depth]) == prefix:
            shape[parts[-1]] = tree_shape(key) if key in sections() else key
    return shape


def shape_of(name: str) -> Shape:
    """Return the keys that a file may have."""
    if legacy := legacy_shape("jobs/*.yaml" if name.startswith("jobs/") else name):
        return legacy
    if name == "hasat.yaml":
        return {**tree_shape(), **_PLACES, **dotnet_sections()}
    section = name.removesuffix(".yaml")
    own = tree_shape(section)
    variables = (
        variable
        for key, leaf in leaves().items()
        if key.startswith(f"{section}.")
        for variable in leaf.names
    )
    # The file may name its section again. Where the .NET service had such settings, it may use the
    # sections of that service.
    has_dotnet_names = any("__" in variable for variable in variables)
    return {**own, section: own, **(dotnet_sections() if has_dotnet_names else {})}


_PLACES = {
    name: Refused(
        msg("it names the folder of the files; set HASAT_{upper} instead.", upper=name.upper())
    )
    for name in ("home", "config")
}


def file_names() -> tuple[str, ...]:
    """Return the files that are read from the configuration folder, besides those of jobs."""
    sources = [f"{name}.yaml" for name, _ in load_plugins().sections()]
    legacy = [file.name for file in legacy_names().files if "/" not in file.name]
    return tuple(dict.fromkeys(("hasat.yaml", *sources, "webhooks.yaml", *legacy)))


def _existing(
    folder: Path | None, environ: Mapping[str, str], cwd: Path, found: Findings
) -> list[tuple[str, Path]]:
    """Return the files to read by their name in the folder; variables may name other paths."""
    elsewhere = {
        name: (variable, absolute(environ[variable].strip(), cwd))
        for variable, name in legacy_names().file_variables.items()
        if environ.get(variable, "").strip()
    }
    for variable, path in elsewhere.values():
        if not is_file(path) and not is_folder(path):
            found.problems.append(
                msg("{variable} names {path}, which does not exist.", variable=variable, path=path)
            )
    files = {name: folder / name for name in file_names()} if folder else {}
    jobs = elsewhere["jobs"][1] if "jobs" in elsewhere else folder and folder / "jobs"
    if jobs and is_folder(jobs):
        files |= {f"jobs/{path.name}": path for path in sorted(jobs.glob("*.yaml"))}
    files |= {name: path for name, (_, path) in elsewhere.items() if name != "jobs"}
    if folder:
        _report_ignored_files(folder, cwd, found)
    return [(name, path) for name, path in files.items() if is_file(path)]


def _report_ignored_files(folder: Path, cwd: Path, found: Findings) -> None:
    """Report files that are probably meant for Hasat but are not read."""
    # The working directory's folder may belong to another program: nothing there is a mistake.
    doubts = found.remarks if folder == cwd / "config" else found.problems
    known, retired_files = file_names(), legacy_names().retired_files
    stems = {name.removesuffix(".yaml"): name for name in known}
    broken = {f"{name}.yaml": name for name in _broken_names()}
    for path in sorted([*folder.glob("*.y*ml"), *folder.glob("jobs/*.y*ml")]):
        label = shown(path, cwd)
        is_ours = path.name in known or path.parent != folder
        if is_ours and path.suffix == ".yaml" and not is_file(path):
            doubts.append(msg("{label} is not a file or a link to one.", label=label))
        elif path.name in retired_files:
            found.remarks.append(
                msg(
                    "{label} has no effect: {because}",
                    label=label,
                    because=retired_files[path.name],
                )
            )
        elif path.name in broken and path.parent == folder:
            found.remarks.append(
                msg(
                    "{label} has no effect: the source {source} cannot be loaded.",
                    label=label,
                    source=broken[path.name],
                )
            )
        elif path.suffix == ".yml" and (path.stem in stems or path.parent != folder):
            doubts.append(
                msg("{label} is not read; rename it to {stem}.yaml.", label=label, stem=path.stem)
            )
        elif path.name not in known and path.parent == folder:
            meant = did_you_mean(path.stem, stems, cutoff=0.8)
            if meant != ".":
                doubts.append(msg("{label} is not read{meant}", label=label, meant=meant))


class _Document:
    """A file that is being read."""

    def __init__(self, name: str, path: Path, label: str, found: Findings) -> None:
        self.name, self.label, self.values = name, label, Values()
        self._path, self._found = path, found
        self._item_defaults: list[tuple[ItemDefault, Item]] = []

    def read(self, root: "Item") -> None:
        self._walk(root, shape_of(self.name), "")
        if any((leaf := leaf_of(key)) and leaf.secret for key in self.values):
            self._warn_if_open()
        for default, item in self._item_defaults:
            self._complete_items(default, item)

    def _walk(self, item: "Item", shape: Shape, path: str) -> None:
        if item.unset:
            return
        if not isinstance(item.content, dict):
            self.problem(
                item, msg("{path} must contain keys and values.", path=path or msg("the file"))
            )
            return
        for name, child in item.content.items():
            target = shape.get(name)
            if target is None:
                self._unknown(name, child, shape, path)
            elif isinstance(target, Refused):
                self.problem(
                    child,
                    msg(
                        "{name!r} cannot be set here: {because}", name=name, because=target.because
                    ),
                )
            elif isinstance(target, Mapping):
                self._walk(child, target, f"{path}.{name}".lstrip("."))
            elif isinstance(target, ItemDefault):
                self._item_defaults.append((target, child))
            elif target == "jobs":
                self._jobs(child)
            elif not isinstance(target, Inert):
                self._give(target, child)

    def _give(self, key: str, item: "Item") -> None:
        if item.unset:
            return
        if key == SCHEDULE:
            self._schedule(item)
            return
        leaf = leaf_of(key)
        if leaf is None or leaf.shape == "text":
            if not isinstance(item.content, str):
                self.problem(item, msg("{key} must be one value.", key=key))
                return
            value = item.content.strip()
        elif key.startswith(f"{SCHEDULE}."):
            value = item.value()
        else:
            value = item.texts()
        if key == "authentication.clients" and isinstance(value, list):
            value = [
                {client_field(k): v for k, v in client.items()}
                if isinstance(client, dict)
                else client
                for client in value
            ]
        if key in self.values:
            self.problem(item, msg("{key} is set twice in this file.", key=key))
        origin = Origin("file", f"{self.label}:{item.line}")
        self.values[key] = Given(value, origin, self._path.parent, dict(item.lines()))

    def _schedule(self, item: "Item") -> None:
        if not isinstance(item.content, dict):
            self.problem(item, msg("{schedule} must name jobs.", schedule=SCHEDULE))
            return
        for job, entry in item.content.items():
            names = ("enabled", "cron", "params", "mode")
            shape = {name: f"{SCHEDULE}.{job}.{name}" for name in names}
            self._walk(entry, shape, f"{SCHEDULE}.{job}")

    def _jobs(self, item: "Item") -> None:
        if not isinstance(item.content, list):
            self.problem(item, msg("jobs must be a list."))
            return
        for entry in item.content:
            fields = entry.content if isinstance(entry.content, dict) else {}
            name = fields["job_id"].content if "job_id" in fields else None
            if not isinstance(name, str) or not name:
                self.problem(entry, msg("a job needs its job_id."))
                continue
            kind = fields["type"].content if "type" in fields else None
            if isinstance(kind, str) and (because := legacy_names().retired_job_types.get(kind)):
                self._found.remarks.append(
                    msg(
                        "{label}:{line}: the job {name} has no effect: {because}",
                        label=self.label,
                        line=entry.line,
                        name=name,
                        because=because,
                    )
                )
                continue
            self._walk(entry, _job_shape(name), msg("the job {name}", name=name))

    def _complete_items(self, default: ItemDefault, item: "Item") -> None:
        """Give the items of a list the field that they lack."""
        if item.unset:
            return
        if not isinstance(item.content, str):
            self.problem(item, msg("{field} must be one value.", field=default.field))
            return
        given = self.values.get(default.key)
        for one in given.value if given and isinstance(given.value, list) else ():
            if isinstance(one, dict):
                one.setdefault(default.field, item.content.strip())

    def _unknown(self, name: str, item: "Item", shape: Shape, path: str) -> None:
        # Comparing with every known name is slow.
        meant = "." if self._found.is_full else did_you_mean(name, shape)
        if meant == "." and self.name == "hasat.yaml":
            full = [repr(key) for key in leaves() if key.rpartition(".")[2] == name][:3]
            if full:
                meant = msg("; did you mean {names}?", names=_alternatives(full))
        if not path and self.name == "hasat.yaml" and name in _broken_names():
            self._found.remarks.append(
                msg(
                    "{label}:{line}: {name} has no effect: the source cannot be loaded.",
                    label=self.label,
                    line=item.line,
                    name=name,
                )
            )
            return
        within = msg(" in {path}", path=path) if path else ""
        self.problem(
            item,
            msg(
                "there is no setting {name!r}{within}{meant}", name=name, within=within, meant=meant
            ),
        )

    def _warn_if_open(self) -> None:
        if stat.S_IMODE(self._path.stat().st_mode) & stat.S_IROTH:
            self._found.remarks.append(
                msg(
                    "{label} contains a secret and is readable by all users of this machine: "
                    "chmod 600 {path}",
                    label=self.label,
                    path=self._path,
                )
            )

    def problem(self, item: "Item", sentence: str) -> None:
        self._found.problems.append(
            msg("{label}:{line}: {sentence}", label=self.label, line=item.line, sentence=sentence)
        )


def _alternatives(names: list[str]) -> Message:
    return join([names[0], *(msg("or {name}", name=name) for name in names[1:])])


def _broken_names() -> set[str]:
    return {source.name for source in load_plugins().broken}


def _job_shape(job: str) -> Shape:
    def place(target: Target) -> Target:
        if isinstance(target, Mapping):
            return {name: place(inner) for name, inner in target.items()}
        return f"{SCHEDULE}.{job}.{target}" if isinstance(target, str) else target

    return {"job_id": Inert(msg("it names the job.")), **{k: place(v) for k, v in JOB.items()}}


def _add(values: Values, sources: dict[str, str], document: _Document, found: Findings) -> None:
    """Add a document's values; two files may agree on a setting, but not contradict each other."""
    overridden = {file.overrides for file in legacy_names().files if file.name == document.name}
    for key, given in document.values.items():
        earlier = values.get(key)
        if earlier is None or earlier.value == given.value:
            values.setdefault(key, given)
            sources.setdefault(key, document.name)
        elif sources[key] in overridden:
            found.remarks.append(
                msg(
                    "{key}: {where} counts, {other} says otherwise.",
                    key=key,
                    where=given.origin.where,
                    other=earlier.origin.where,
                )
            )
            values[key] = given
        else:
            found.problems.append(
                msg(
                    "{key} is set in {where} and, differently, in {other}.",
                    key=key,
                    where=earlier.origin.where,
                    other=given.origin.where,
                )
            )
