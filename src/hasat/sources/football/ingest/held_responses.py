"""Responses that the guard stopped during a run: held together, and loaded when approved."""

import base64
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from hasat.feed.guard import Counts
from hasat.feed.holds import Finding, GuardError
from hasat.jobs import RunContext
from hasat.sources.football.ingest.loader import load
from hasat.sources.football.ingest.raw_store import ApiResponse

_INPUT = "responses"


@dataclass
class HeldResponses:
    """The responses of one run that would remove too many records."""

    _responses: list[tuple[ApiResponse, Collection[int] | None]] = field(default_factory=list)
    _findings: list[Finding] = field(default_factory=list)

    _orders: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._responses)

    def add(
        self,
        response: ApiResponse,
        leagues: Collection[int] | None,
        finding: Finding,
        order: int,
    ) -> None:
        """Add a response of which nothing was loaded, with its place in the order of receipt."""
        self._responses.append((response, leagues))
        self._findings.append(finding)
        self._orders.append(order)

    def error(self, warnings: Collection[str]) -> GuardError:
        """Return the error that holds the run with these responses."""
        detail = {"warnings": sorted(warnings), "orders": self._orders}
        return GuardError(
            _merge(self._findings, detail),
            {_INPUT: json.dumps([_document(*one) for one in self._responses]).encode()},
        )


async def load_held(context: RunContext, retention_days: int) -> int:
    """Load the responses of the approved hold; return the number of changes.

    A record that was received after the hold was made is newer and stays as it is. A rebuild finds
    the same: the raw responses keep their place in the order of receipt.
    """
    assert context.approving is not None
    hold = await context.approved_hold()
    async with context.inputs() as files:
        documents = json.loads(files[_INPUT].read_bytes())
    orders = hold.preview["orders"]
    responses = [_response(*one) for one in zip(documents, orders, strict=True)]
    groups = [
        (leagues, [response for response, _ in group])
        for leagues, group in groupby(responses, key=lambda one: one[1])
    ]
    changed = 0
    for number, (leagues, group) in enumerate(groups, start=1):
        version = await load(
            context.store,
            group,
            run=context.run_id,
            retention_days=retention_days,
            leagues=leagues,
            newer_than=hold.at,
            # An interrupted approval is repeated as a whole: the hold is open until the end.
            approving=hold.id if number == len(groups) else None,
        )
        if version is not None:
            changed += sum(count.total for count in version.counts.values())
    return changed


def _merge(findings: Collection[Finding], detail: Mapping[str, Any]) -> Finding:
    """Return one finding about all responses: the sums of their changes, without unchanged data."""
    counts: dict[str, Counts] = {}
    scopes: dict[str, list[Any]] = {}
    examples: dict[str, Any] = {}
    for finding in findings:
        for name, new in finding.counts.items():
            if new.total:
                old = counts.get(name, Counts())
                counts[name] = Counts(
                    old.added + new.added,
                    old.modified + new.modified,
                    old.removed + new.removed,
                    new.records,
                )
                scopes.setdefault(name, []).append(finding.scopes[name])
                examples.setdefault(name, finding.examples.get(name, {}))
    return Finding(
        [measure for finding in findings for measure in finding.measures],
        counts,
        {name: found[0] if len(found) == 1 else {"all": found} for name, found in scopes.items()},
        examples,
        detail,
    )


def _document(response: ApiResponse, leagues: Collection[int] | None) -> dict[str, Any]:
    # Without the headers: they differ each time, and the same finding must be the same input.
    return {
        "endpoint": response.endpoint,
        "parameters": dict(response.parameters),
        "status": response.status,
        "leagues": None if leagues is None else sorted(leagues),
        "body": base64.b64encode(response.body).decode(),
    }


def _response(document: Mapping[str, Any], order: int) -> tuple[ApiResponse, list[int] | None]:
    return (
        ApiResponse(
            document["endpoint"],
            document["parameters"],
            base64.b64decode(document["body"]),
            document["status"],
            order=order,
        ),
        document["leagues"],
    )
