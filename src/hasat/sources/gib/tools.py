"""MCP tools to look up and search taxpayers, and to decide about held runs."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from hasat.jobs.queue import queue_run
from hasat.sources.gib.datasets import DATASETS
from hasat.sources.gib.identifiers import check_identifier
from hasat.sources.gib.lookups import look_up, not_a_taxpayer, taxpayer_json
from hasat.sources.gib.search import MAX_PAGE_SIZE, search
from hasat.sources.gib.status import status
from hasat.sources.gib.sync.held import reject as reject_held
from hasat.sources.registry import Tool, ToolContext
from hasat.sources.tools import Reason, RunId, Text, ToolResponse, operating_tool, tools
from hasat.store.audit import describe_action

DatasetName = Literal["einvoice", "edespatch"]
_BY_NAME = {dataset.name: dataset for dataset in DATASETS}


class Alias(BaseModel):
    name: str
    type: str
    creation_time: str | None


class Taxpayer(BaseModel):
    """An active taxpayer as published by the Revenue Administration."""

    identifier: str
    identifier_kind: str | None
    identifier_valid: bool
    title: str | None
    type: str | None
    account_type: str | None
    first_creation_time: str | None
    aliases: list[Alias]


class TaxpayerResponse(ToolResponse):
    dataset: str
    committed_at: datetime = Field(description="Time of the newest commit.")
    taxpayer: Taxpayer


class TaxpayersResponse(ToolResponse):
    dataset: str
    total: int
    items: list[Taxpayer]


class ListsStatus(ToolResponse):
    status: dict[str, Any] = Field(
        description="The original service's status, and the number of held runs."
    )


class Decision(ToolResponse):
    run_id: int
    state: str
    queued_run: int | None = Field(
        default=None, description="The run that applies the approved lists."
    )
    message: str | None = Field(
        default=None,
        description="The machine whose worker must run it, if only that one has the lists.",
    )


class GibTools:
    """The tools of this source."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context

    def all(self) -> tuple[Tool, ...]:
        return (
            *tools(self.lookup_taxpayer, self.search_taxpayers, self.get_taxpayer_lists_status),
            operating_tool(self.approve_held_run, "hold.approve"),
            operating_tool(self.reject_held_run, "hold.reject"),
        )

    async def lookup_taxpayer(
        self, identifier: Text, dataset: DatasetName = "einvoice"
    ) -> TaxpayerResponse:
        """Return the active taxpayer with a VKN (10 digits) or TCKN (11), with its aliases."""
        check_identifier(identifier)
        async with self._context.store.connection() as conn:
            found = await look_up(conn, _BY_NAME[dataset], [identifier])
        if identifier not in found.bodies:
            raise not_a_taxpayer(dataset, identifier)
        return TaxpayerResponse(
            ts_utc=await self._context.store.now(),
            dataset=dataset,
            committed_at=found.committed_at,
            taxpayer=_taxpayer(found.bodies[identifier]),
        )

    async def search_taxpayers(
        self,
        text: Text,
        dataset: DatasetName = "einvoice",
        limit: Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE)] = 20,
    ) -> TaxpayersResponse:
        """Find companies whose title or identifier contains a text; persons are excluded."""
        async with self._context.store.connection() as conn:
            found = await search(conn, _BY_NAME[dataset], text=text, size=limit, personal=False)
        return TaxpayersResponse(
            ts_utc=await self._context.store.now(),
            dataset=dataset,
            total=found.total,
            items=[_taxpayer(body) for body in found.bodies],
        )

    async def get_taxpayer_lists_status(self) -> ListsStatus:
        """Return the last syncs of the taxpayer lists, their outcomes, and held runs."""
        found = await status(self._context.store, self._context.settings)
        return ListsStatus(ts_utc=await self._context.store.now(), status=dict(found))

    async def approve_held_run(self, run_id: RunId, reason: Reason = None) -> Decision:
        """Approve a held sync: apply its lists exactly as they were."""
        describe_action(reason=reason)
        context = self._context
        run = await queue_run(context.store, context.catalogue, "gib_sync", {"approve": run_id})
        return Decision(
            ts_utc=await context.store.now(),
            run_id=run_id,
            state="approved",
            queued_run=run.id,
            message=run.message,
        )

    async def reject_held_run(self, run_id: RunId, reason: Reason = None) -> Decision:
        """Reject a held sync; it cannot be approved afterwards."""
        describe_action(reason=reason)
        await reject_held(self._context.store, self._context.settings, run_id)
        return Decision(ts_utc=await self._context.store.now(), run_id=run_id, state="rejected")


def _taxpayer(body: Any) -> Taxpayer:
    fields = taxpayer_json(body)
    return Taxpayer(
        identifier=fields["identifier"],
        identifier_kind=fields["identifierKind"],
        identifier_valid=fields["identifierValid"],
        title=fields["title"],
        type=fields["type"],
        account_type=fields["accountType"],
        first_creation_time=fields["firstCreationTime"],
        aliases=[
            Alias(name=one["name"], type=one["type"], creation_time=one["creationTime"])
            for one in fields["aliases"]
        ],
    )
