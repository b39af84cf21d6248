"""Diagnostics: the checks of `hasat doctor` and of the running server, with remedies."""

from collections.abc import Sequence
from dataclasses import dataclass

from hasat.api import diagnostics
from hasat.api.diagnostics import Finding
from hasat.deliver.outbox import list_deliveries
from hasat.errors import NotAllowedError
from hasat.feed.holds import list_holds
from hasat.jobs.runs import count_live_workers
from hasat.messages import msg
from hasat.pages import Page, PageRequest

_WORST_FIRST = ("failure", "warning", "ok")


@dataclass(frozen=True)
class Doctor:
    """The data of the page, the most severe finding first."""

    findings: Sequence[Finding]


async def doctor(request: PageRequest) -> Doctor:
    """Run the checks."""
    if not request.may_operate:
        # Findings contain paths and addresses of this machine.
        raise NotAllowedError(
            msg("Diagnostics require the scope operate."),
            remedy=msg("Use an API key with the scope operate."),
        )
    context, store, settings = request.context, request.store, request.context.settings
    found = [diagnostics.check_python(), *diagnostics.check_machine(settings)]
    found.append(diagnostics.check_jobs(context.catalogue, settings))
    found += await diagnostics.check_database(store, settings, context.sources)
    workers = await count_live_workers(store, settings)
    if workers:
        found.append(Finding("workers", "ok", msg("Workers running: {workers}", workers=workers)))
    else:
        found.append(
            Finding(
                "workers",
                "warning",
                msg("No worker is running."),
                msg("Start one: `hasat worker`."),
            )
        )
    if waiting := await list_holds(request.store, state="waiting"):
        held_runs = ", ".join(str(one.id) for one in waiting)
        found.append(
            Finding(
                "guard",
                "warning",
                msg("Held runs need a decision: {runs}.", runs=held_runs),
                msg("Approve or reject them."),
            )
        )
    if await list_deliveries(store, state="dead", limit=1):
        found.append(
            Finding(
                "delivery",
                "warning",
                msg("There are dead letters."),
                msg("Resend them on the Delivery page."),
            )
        )
    return Doctor(sorted(found, key=lambda one: _WORST_FIRST.index(one.grade)))


PAGES = (Page("/doctor", "doctor", doctor, "doctor"),)
