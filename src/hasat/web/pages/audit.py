"""The audit log: who did what, when, from where, why and with which outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hasat.errors import NotAllowedError
from hasat.messages import msg, restored
from hasat.pages import Page, PageRequest
from hasat.store.audit import ACTIONS, AuditRecord, list_audit

_PAGE_SIZE = 50


@dataclass(frozen=True)
class AuditRow:
    """One recorded action; `run` is the run that it started or changed, if any."""

    id: int
    at: datetime
    actor: str
    actor_kind: str
    address: str
    action: str
    object: str
    reason: str | None
    outcome: str
    message: str | None
    run: int | None
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class AuditPage:
    """The data of the page."""

    actor: str
    action: str
    actions: Sequence[str]
    records: Sequence[AuditRow]
    older_than: int | None
    """The id from which the next page continues."""


async def audit(request: PageRequest) -> AuditPage:
    """Load one page of records, newest first."""
    if not request.may_operate:
        raise NotAllowedError(
            msg("The audit log requires the scope operate."),
            remedy=msg("Use an API key with the scope operate."),
        )
    actor, action = request.text("actor"), request.text("action")
    found = await list_audit(
        request.store,
        actor=actor or None,
        action=action or None,
        before=request.number("before"),
        limit=_PAGE_SIZE + 1,
    )
    shown = found[:_PAGE_SIZE]
    return AuditPage(
        actor=actor,
        action=action,
        actions=sorted(
            [*ACTIONS, *(code for one in request.context.sources for code in one.actions)]
        ),
        records=[_row(one) for one in shown],
        older_than=shown[-1].id if len(found) > _PAGE_SIZE else None,
    )


def _row(one: AuditRecord) -> AuditRow:
    about_run = one.action.startswith(("run.", "hold.")) and one.outcome == "done"
    return AuditRow(
        id=one.id,
        at=one.at,
        actor=one.actor,
        actor_kind=one.actor_kind,
        address=one.address,
        action=one.action,
        object=one.object,
        reason=one.reason,
        outcome=one.outcome,
        message=restored(one.detail.get("message"), one.detail.get("messageData")),
        run=int(one.object) if about_run and one.object.isdecimal() else None,
        detail=one.detail,
    )


PAGES = (Page("/audit", "audit", audit, "audit"),)
