"""The doctor: everything a running house needs, each finding with its remedy."""

from collections.abc import Sequence
from dataclasses import dataclass

from hasat.api import diagnostics
from hasat.api.diagnostics import Finding
from hasat.deliver.outbox import list_deliveries
from hasat.errors import NotAllowedError
from hasat.jobs.runs import count_live_workers
from hasat.messages import msg
from hasat.web import held
from hasat.web.page import Asked, Page

_WORST_FIRST = ("failure", "warning", "ok")


@dataclass(frozen=True)
class Doctor:
    """All of the page, the worst first."""

    findings: Sequence[Finding]


async def doctor(asked: Asked) -> Doctor:
    """What `hasat doctor` looks at, and what only a running house can tell."""
    if not asked.may_operate:
        # Where things are on this machine is nobody else's business.
        raise NotAllowedError(
            msg("The findings are for who may operate."),
            remedy=msg("Use a key with the scope operate."),
        )
    house, store, settings = asked.house, asked.store, asked.house.settings
    found = [diagnostics.check_python(), *diagnostics.check_machine(settings)]
    found.append(diagnostics.check_jobs(house.catalogue, settings))
    found += await diagnostics.check_database(store, settings, house.sources)
    workers = await count_live_workers(store, settings)
    if workers:
        found.append(Finding("workers", "ok", msg("{workers} alive", workers=workers)))
    else:
        found.append(
            Finding(
                "workers", "warning", msg("No worker is alive."), msg("Start one: `hasat worker`.")
            )
        )
    if waiting := await held.waiting(house):
        told = ", ".join(str(one.run) for one in waiting)
        found.append(
            Finding(
                "guard",
                "warning",
                msg("Held runs wait for a decision: {told}.", told=told),
                msg("Decide them."),
            )
        )
    if await list_deliveries(store, state="dead", limit=1):
        found.append(
            Finding(
                "delivery", "warning", msg("There are dead letters."), msg("See the page Delivery.")
            )
        )
    for source in house.sources:
        if source.lacks is not None and (lacking := source.lacks(settings)):
            found.append(Finding(source.name, "warning", lacking))
    return Doctor(sorted(found, key=lambda one: _WORST_FIRST.index(one.grade)))


PAGES = (Page("/doctor", "doctor", doctor, "doctor"),)
