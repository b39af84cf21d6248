"""The pages of an installation: those of the platform and those of its sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from urllib.parse import quote, urlencode

from hasat.errors import SettingsError
from hasat.http.routes import Caller
from hasat.messages import msg
from hasat.pages import Action, NavigationEntry, Page
from hasat.settings import Settings
from hasat.source import Source
from hasat.source.installed import is_active
from hasat.source.parts import load_part
from hasat.web.labels import LABELS
from hasat.web.pages import ACTIONS, NAVIGATION, PAGES


@dataclass(frozen=True)
class Site:
    """Everything that the pages consist of; `folders` of a source are named by the source."""

    pages: Sequence[Page]
    actions: Sequence[Action]
    navigation: Sequence[NavigationEntry]
    labels: Mapping[str, Mapping[str, str]]
    templates: Mapping[str, Traversable]
    static: Mapping[str, Traversable]
    records: Mapping[str, str]
    """The addresses of the sources' pages of records by dataset, with `{key}`."""
    lists: Mapping[str, str]
    """The addresses of the sources' own lists by dataset."""
    hidden: frozenset[str] = frozenset()
    """The paths of entries that the navigation leaves out: those of inactive sources."""

    def record_address(self, dataset: str, key: str) -> str:
        """Return the address of the page of a record."""
        if own := self.records.get(dataset):
            return own.replace("{key}", quote(key, safe=""))
        return f"/changes/record?{urlencode({'dataset': dataset, 'key': key})}"

    def list_address(self, dataset: str) -> str:
        """Return the address of the list of a dataset's records."""
        return self.lists.get(dataset) or f"/records?{urlencode({'dataset': dataset})}"

    def title(self, section: str) -> str:
        """Return the label of a section; empty if it is not in the navigation."""
        return next((one.label for one in self.navigation if one.section == section), "")

    def is_open(self, entry: NavigationEntry, caller: Caller | None) -> bool:
        """Return whether the navigation shows an entry to a caller, whose key must allow it."""
        if entry.path in self.hidden:
            return False
        if caller is None or caller.datasets is None:
            return True
        page = next((one for one in self.pages if one.path == entry.path), None)
        if page is None or page.datasets is None:
            return False
        return all(caller.may_read(dataset) for dataset in page.datasets)


def build_site(sources: Sequence[Source], settings: Settings | None = None) -> Site:
    """Combine the pages of the platform with those of the sources.

    With `settings`, the navigation is without the sources that the operator does not want.
    """
    hidden: set[str] = set()
    pages, actions, navigation = [*PAGES], [*ACTIONS], [*NAVIGATION]
    labels = {kind: dict(texts) for kind, texts in LABELS.items()}
    templates = {"": files("hasat.web") / "templates"}
    static = {"": files("hasat.web") / "static"}
    records: dict[str, str] = {}
    lists: dict[str, str] = {}
    for source in sources:
        labels["action"] |= source.actions
        if (own := load_part(source, source.pages)) is None:
            continue
        pages += [replace(page, name=f"{source.name}/{page.name}") for page in own.pages]
        actions += own.actions
        navigation += own.navigation
        records |= own.records
        lists |= own.lists
        if settings is not None and not is_active(source, settings):
            hidden |= {entry.path for entry in own.navigation}
        templates[source.name] = own.templates
        if own.static is not None:
            static[source.name] = own.static
        for kind, texts in own.labels.items():
            labels.setdefault(kind, {}).update(texts)
    _check_paths([page.path for page in pages])
    _check_paths([action.path for action in actions])
    ordered = sorted(navigation, key=lambda entry: entry.order)
    return Site(
        pages,
        actions,
        ordered,
        labels,
        templates,
        static,
        records,
        lists,
        frozenset(hidden),
    )


def _check_paths(paths: Sequence[str]) -> None:
    if duplicates := sorted({path for path in paths if paths.count(path) > 1}):
        raise SettingsError(
            msg("More than one page has the address {paths}.", paths=", ".join(duplicates)),
            remedy=msg("Uninstall one of the packages, or report the problem to its author."),
        )
