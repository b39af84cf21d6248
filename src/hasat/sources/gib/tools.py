"""MCP tools to check, look up and search taxpayers."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from hasat.source import Tool, ToolContext
from hasat.sources.gib.check.answers import check
from hasat.sources.gib.datasets import DATASETS
from hasat.sources.gib.identifiers import check_identifier
from hasat.sources.gib.lookups import look_up, not_a_taxpayer, taxpayer_json
from hasat.sources.gib.search import MAX_PAGE_SIZE, search
from hasat.sources.gib.status import status
from hasat.tools import Text, ToolResponse, tools

DatasetName = Literal["einvoice", "edespatch"]
_MAX_CHECKED = 100
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
    similar: bool = Field(description="No title has all words; these are similar.")
    items: list[Taxpayer]


class Registration(BaseModel):
    """What one dataset says about a taxpayer."""

    registered: bool
    since: str | None
    send_to: str | None = Field(description="The newest alias that receives documents.")


class Checked(BaseModel):
    """Whether to send a taxpayer an e-Fatura or an e-Arşiv invoice, and where to."""

    identifier: str
    identifier_valid: bool
    title: str | None
    einvoice: Registration
    edespatch: Registration
    invoice_kind: str


class Malformed(BaseModel):
    input: str
    reason: str
    likely: str | None = Field(description="The identifier that was likely meant; not looked up.")


class CheckResponse(ToolResponse):
    committed_at: datetime = Field(description="Time of the newest commit.")
    items: list[Checked]
    malformed: list[Malformed]


class ListsStatus(ToolResponse):
    status: dict[str, Any] = Field(
        description="The original service's status, and the number of held runs."
    )


class GibTools:
    """The tools of this source."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context

    def all(self) -> tuple[Tool, ...]:
        return tools(
            self.check_taxpayers,
            self.lookup_taxpayer,
            self.search_taxpayers,
            self.get_taxpayer_lists_status,
        )

    async def check_taxpayers(
        self, identifiers: Annotated[list[Text], Field(min_length=1, max_length=_MAX_CHECKED)]
    ) -> CheckResponse:
        """Tell for VKNs or TCKNs whether to send an e-Fatura or e-Arşiv invoice, and where to."""
        async with self._context.store.connection() as conn:
            found = await check(conn, identifiers)
        faults = [(one, found.find_malformation(one)) for one in identifiers]
        return CheckResponse(
            ts_utc=await self._context.store.now(),
            committed_at=found.committed_at,
            items=[_checked(found.answer(one)) for one, fault in faults if fault is None],
            malformed=[
                Malformed(input=one, reason=fault.reason, likely=fault.likely)
                for one, fault in faults
                if fault is not None
            ],
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
        """Find companies by words of the title or identifier, or similar titles; no persons."""
        async with self._context.store.connection() as conn:
            found = await search(conn, _BY_NAME[dataset], text=text, size=limit, personal=False)
        return TaxpayersResponse(
            ts_utc=await self._context.store.now(),
            dataset=dataset,
            total=found.total,
            similar=found.similar,
            items=[_taxpayer(body) for body in found.bodies],
        )

    async def get_taxpayer_lists_status(self) -> ListsStatus:
        """Return the last syncs of the taxpayer lists, their outcomes, and held runs."""
        found = await status(self._context.store, self._context.settings)
        return ListsStatus(ts_utc=await self._context.store.now(), status=dict(found))


def _checked(answer: dict[str, Any]) -> Checked:
    return Checked(
        identifier=answer["identifier"],
        identifier_valid=answer["valid"],
        title=answer["title"],
        einvoice=_registration(answer["einvoice"]),
        edespatch=_registration(answer["edespatch"]),
        invoice_kind=answer["invoiceKind"],
    )


def _registration(one: dict[str, Any]) -> Registration:
    return Registration(registered=one["registered"], since=one["since"], send_to=one["sendTo"])


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
