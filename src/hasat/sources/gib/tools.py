"""What assistants may ask about taxpayers, and how they decide what the guard held."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from hasat.jobs.queue import queue_run
from hasat.sources.gib.datasets import DATASETS
from hasat.sources.gib.identifiers import check_identifier
from hasat.sources.gib.lookups import look_up, not_there, taxpayer
from hasat.sources.gib.search import MOST_ON_A_PAGE, search
from hasat.sources.gib.status import status
from hasat.sources.gib.sync.held import reject as reject_held
from hasat.sources.registry import Tool, ToolContext
from hasat.sources.tools import Reason, RunId, Text, ToolResponse, operating_tool, tools
from hasat.store.audit import describe_action

Which = Literal["einvoice", "edespatch"]
_BY_NAME = {dataset.name: dataset for dataset in DATASETS}


class Alias(BaseModel):
    name: str
    type: str
    creation_time: str | None


class Taxpayer(BaseModel):
    """An active taxpayer as the revenue administration publishes him."""

    identifier: str
    identifier_kind: str | None
    identifier_valid: bool
    title: str | None
    type: str | None
    account_type: str | None
    first_creation_time: str | None
    aliases: list[Alias]


class TaxpayerTold(ToolResponse):
    dataset: str
    committed_at: datetime = Field(description="The newest synchronisation it is as of.")
    taxpayer: Taxpayer


class TaxpayersTold(ToolResponse):
    dataset: str
    total: int
    items: list[Taxpayer]


class ListsTold(ToolResponse):
    status: dict[str, Any] = Field(description="The original service's status, and held runs.")


class Decided(ToolResponse):
    run_id: int
    state: str
    queued_run: int | None = Field(
        default=None, description="The run that applies what was approved."
    )
    message: str | None = Field(
        default=None, description="Which machine's worker the run waits for, if only one has it."
    )


class GibTools:
    """The tools of this source."""

    def __init__(self, shop: ToolContext) -> None:
        self._shop = shop

    def all(self) -> tuple[Tool, ...]:
        return (
            *tools(self.lookup_taxpayer, self.search_taxpayers, self.get_taxpayer_lists_status),
            operating_tool(self.approve_held_run, "hold.approve"),
            operating_tool(self.reject_held_run, "hold.reject"),
        )

    async def lookup_taxpayer(self, identifier: Text, dataset: Which = "einvoice") -> TaxpayerTold:
        """Whether a VKN (10 digits) or TCKN (11) is an active taxpayer, with his aliases."""
        check_identifier(identifier)
        async with self._shop.store.connection() as conn:
            found = await look_up(conn, _BY_NAME[dataset], [identifier])
        if identifier not in found.bodies:
            raise not_there(dataset, identifier)
        return TaxpayerTold(
            ts_utc=await self._shop.store.now(),
            dataset=dataset,
            committed_at=found.committed_at,
            taxpayer=_taxpayer(found.bodies[identifier]),
        )

    async def search_taxpayers(
        self,
        text: Text,
        dataset: Which = "einvoice",
        limit: Annotated[int, Field(ge=1, le=MOST_ON_A_PAGE)] = 20,
    ) -> TaxpayersTold:
        """Companies whose title or identifier has this text in it; people are not searched."""
        async with self._shop.store.connection() as conn:
            found = await search(conn, _BY_NAME[dataset], text=text, size=limit, personal=False)
        return TaxpayersTold(
            ts_utc=await self._shop.store.now(),
            dataset=dataset,
            total=found.total,
            items=[_taxpayer(body) for body in found.bodies],
        )

    async def get_taxpayer_lists_status(self) -> ListsTold:
        """When the taxpayer lists were last synchronised, how that went, and what is held."""
        told = await status(self._shop.store, self._shop.settings)
        return ListsTold(ts_utc=await self._shop.store.now(), status=dict(told))

    async def approve_held_run(self, run_id: RunId, reason: Reason = None) -> Decided:
        """Apply the lists of a synchronisation that the guard held, exactly as they were."""
        describe_action(reason=reason)
        shop = self._shop
        run = await queue_run(shop.store, shop.catalogue, "gib_sync", {"approve": run_id})
        return Decided(
            ts_utc=await shop.store.now(),
            run_id=run_id,
            state="approved",
            queued_run=run.id,
            message=run.message,
        )

    async def reject_held_run(self, run_id: RunId, reason: Reason = None) -> Decided:
        """Drop a synchronisation that the guard held; it cannot be approved afterwards."""
        describe_action(reason=reason)
        await reject_held(self._shop.store, self._shop.settings, run_id)
        return Decided(ts_utc=await self._shop.store.now(), run_id=run_id, state="rejected")


def _taxpayer(body: Any) -> Taxpayer:
    told = taxpayer(body)
    return Taxpayer(
        identifier=told["identifier"],
        identifier_kind=told["identifierKind"],
        identifier_valid=told["identifierValid"],
        title=told["title"],
        type=told["type"],
        account_type=told["accountType"],
        first_creation_time=told["firstCreationTime"],
        aliases=[
            Alias(name=one["name"], type=one["type"], creation_time=one["creationTime"])
            for one in told["aliases"]
        ],
    )
