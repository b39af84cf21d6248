"""Everything that the author of a source needs, in one import.

A source is one `Source` object, named by an entry point of the group `hasat.sources`:

    [project.entry-points."hasat.sources"]
    bank = "hasat_bank:SOURCE"

The built-in sources are registered in the same way and have no privileges. The other modules of
Hasat may change in any release; the names here do not change without a note in the changelog.
"""

from typing import TYPE_CHECKING

from hasat.budget import Budget, EndpointLimit, Lane, Remaining, Upstream
from hasat.deliver import Event, publish_event
from hasat.errors import (
    BrokenAnswerError,
    ConflictError,
    HasatError,
    NotFoundError,
    OutOfQuotaError,
    SettingsError,
    UnavailableError,
    UsageError,
)
from hasat.feed.columns import Column
from hasat.feed.dataset import WHOLE, Dataset, Scope, XmlForm
from hasat.feed.guard import Limits, Measure, measure_changes
from hasat.feed.holds import GuardError, check_guard
from hasat.feed.raw import RawRequest, mark_applied, store_body
from hasat.feed.rebuild import Rebuild
from hasat.feed.reconcile import Reconcile, Record
from hasat.jobs import Catalogue, Job, Outcome, Run, RunContext
from hasat.lazy import lazy_names
from hasat.messages import msg, template
from hasat.settings import LegacyNames, Section, Settings, types
from hasat.settings.events import EventKind
from hasat.source.contract import (
    MetricsHook,
    Served,
    Source,
    StatusHook,
    Strategy,
    Tool,
    ToolContext,
    Traffic,
    lazy,
)
from hasat.store import Store
from hasat.store.quarantine import QuarantinedRecord, quarantine

if TYPE_CHECKING:
    from hasat.console.context import get_settings
    from hasat.console.output import JsonFlag, emit
    from hasat.console.runtime import run_with_store, with_audit
    from hasat.demo import DemoFolder, DemoPart, Loading, Scene
    from hasat.fetch import Client, ClientOptions, Fetcher, Request, RequestContext
    from hasat.http.routes import ReadStoreDep, StoreDep, audited, declare_responses, require
    from hasat.pages import Action, NavigationEntry, Page, PageRequest, SourcePages
    from hasat.sim import Simulation, Simulator
    from hasat.strategies import (
        PerKey,
        UnreadableRecordError,
        WatchedKey,
        WholeList,
        add_keys,
        read_keys,
        record_of,
        remove_keys,
    )
    from hasat.tools import ToolResponse

__all__ = [
    "WHOLE",
    "Action",
    "BrokenAnswerError",
    "Budget",
    "Catalogue",
    "Client",
    "ClientOptions",
    "Column",
    "ConflictError",
    "Dataset",
    "DemoFolder",
    "DemoPart",
    "EndpointLimit",
    "Event",
    "EventKind",
    "Fetcher",
    "GuardError",
    "HasatError",
    "Job",
    "JsonFlag",
    "Lane",
    "LegacyNames",
    "Limits",
    "Loading",
    "Measure",
    "MetricsHook",
    "NavigationEntry",
    "NotFoundError",
    "OutOfQuotaError",
    "Outcome",
    "Page",
    "PageRequest",
    "PerKey",
    "QuarantinedRecord",
    "RawRequest",
    "ReadStoreDep",
    "Rebuild",
    "Reconcile",
    "Record",
    "Remaining",
    "Request",
    "RequestContext",
    "Run",
    "RunContext",
    "Scene",
    "Scope",
    "Section",
    "Served",
    "Settings",
    "SettingsError",
    "Simulation",
    "Simulator",
    "Source",
    "SourcePages",
    "StatusHook",
    "Store",
    "StoreDep",
    "Strategy",
    "Tool",
    "ToolContext",
    "ToolResponse",
    "Traffic",
    "UnavailableError",
    "UnreadableRecordError",
    "Upstream",
    "UsageError",
    "WatchedKey",
    "WholeList",
    "XmlForm",
    "add_keys",
    "audited",
    "check_guard",
    "declare_responses",
    "emit",
    "get_settings",
    "lazy",
    "mark_applied",
    "measure_changes",
    "msg",
    "publish_event",
    "quarantine",
    "read_keys",
    "record_of",
    "remove_keys",
    "require",
    "run_with_store",
    "store_body",
    "template",
    "types",
    "with_audit",
]

# Loaded on demand: commands and workers need no pages, and a server needs no commands.
_ON_DEMAND = {
    "hasat.console.context": ("get_settings",),
    "hasat.console.output": ("JsonFlag", "emit"),
    "hasat.console.runtime": ("run_with_store", "with_audit"),
    "hasat.demo": ("DemoFolder", "DemoPart", "Loading", "Scene"),
    "hasat.fetch": ("Client", "ClientOptions", "Fetcher", "Request", "RequestContext"),
    "hasat.http.routes": ("ReadStoreDep", "StoreDep", "audited", "declare_responses", "require"),
    "hasat.pages": ("Action", "NavigationEntry", "Page", "PageRequest", "SourcePages"),
    "hasat.sim": ("Simulation", "Simulator"),
    "hasat.strategies": (
        *("PerKey", "UnreadableRecordError", "WatchedKey", "WholeList"),
        *("add_keys", "read_keys", "record_of", "remove_keys"),
    ),
    "hasat.tools": ("ToolResponse",),
}
__getattr__ = lazy_names(__name__, _ON_DEMAND)
