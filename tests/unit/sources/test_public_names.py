"""The names of `hasat.source`, which packages of other authors import."""

import subprocess
import sys

import hasat.source

NAMES = """
WHOLE Action BrokenAnswerError Budget Catalogue Client ClientOptions Column ConflictError Dataset
DemoFolder DemoPart EndpointLimit Event EventKind Fetcher GuardError HasatError Job JsonFlag Lane
LegacyNames Limits Loading Measure MetricsHook NavigationEntry NotFoundError OutOfQuotaError
Outcome Page PageRequest PerKey QuarantinedRecord RawRequest ReadStoreDep Rebuild Reconcile Record
Remaining Request RequestContext Run RunContext Scene Scope Section Served Settings
SettingsError Simulation Simulator Source SourcePages StatusHook Store StoreDep Strategy Tool
ToolContext ToolResponse Traffic UnavailableError UnreadableRecordError Upstream UsageError
WatchedKey WholeList XmlForm add_keys audited check_guard declare_responses emit get_settings lazy
mark_applied measure_changes msg publish_event quarantine read_keys record_of remove_keys require
run_with_store store_body template types with_audit
"""


def test_no_name_goes_or_comes_by_chance() -> None:
    assert hasat.source.__all__ == NAMES.split()


def test_every_name_can_be_imported() -> None:
    assert [name for name in NAMES.split() if getattr(hasat.source, name, None) is None] == []


def test_the_contract_loads_neither_pages_nor_commands() -> None:
    code = (
        "import hasat.source, sys; print(*sorted({'fastapi', 'httpx2', 'typer'} & {*sys.modules}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""
