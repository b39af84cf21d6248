"""Audit: who did what, from where, why, when and with what outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hasat.errors import NotAllowedError
from hasat.messages import msg, restored
from hasat.store.audit import ACTIONS, AuditRecord, list_audit
from hasat.web.page import Asked, Page

_ON_A_PAGE = 50


@dataclass(frozen=True)
class AuditLine:
    """One recorded action; `run` is the run that it changed or started, if there is one."""

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
    """All of the page."""

    actor: str
    action: str
    actions: Sequence[str]
    records: Sequence[AuditLine]
    older_than: int | None
    """Where the next page of older records begins."""


async def audit(asked: Asked) -> AuditPage:
    """Return one page of records, newest first."""
    if not asked.may_operate:
        raise NotAllowedError(
            msg("The audit record is for who may operate."),
            remedy=msg("Use a key with the scope operate."),
        )
    actor, action = asked.text("actor"), asked.text("action")
    found = await list_audit(
        asked.store,
        actor=actor or None,
        action=action or None,
        before=asked.number("before"),
        limit=_ON_A_PAGE + 1,
    )
    shown = found[:_ON_A_PAGE]
    return AuditPage(
        actor=actor,
        action=action,
        actions=ACTIONS,
        records=[_line(one) for one in shown],
        older_than=shown[-1].id if len(found) > _ON_A_PAGE else None,
    )


def _line(one: AuditRecord) -> AuditLine:
    about_run = one.action.startswith(("run.", "hold.")) and one.outcome == "done"
    return AuditLine(
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
