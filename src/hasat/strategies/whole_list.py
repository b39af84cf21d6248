"""WholeList: one download covers a whole dataset."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from psycopg import sql

from hasat.budget import Budget, Lane, Upstream
from hasat.errors import BrokenAnswerError, HasatError, NothingToDoError
from hasat.feed.dataset import WHOLE, Dataset, Scope
from hasat.feed.encoding import pack
from hasat.feed.guard import measure_changes, measure_size, measure_unreadable
from hasat.feed.holds import check_guard, counts_json
from hasat.feed.raw import (
    RawRequest,
    expire_responses,
    iter_applied,
    last_applied_size,
    mark_applied,
    open_stored,
    store_file,
)
from hasat.feed.rebuild import OnResponses, RebuildResult, RebuildSummary, StagedRebuild
from hasat.feed.reconcile import Reconcile, Record
from hasat.fetch import RequestContext
from hasat.fetch.downloads import (
    DEFAULT_MAX_BYTES,
    DEFAULT_PAUSES,
    Download,
    DownloadedFile,
    Downloader,
    invalidate_download,
)
from hasat.jobs import Job, Outcome, RunContext
from hasat.messages import msg
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.quarantine import quarantine
from hasat.strategies.records import (
    ParsedRecords,
    ToRecord,
    as_record,
    parse_records,
)

_BATCH = 5_000
_INPUT = "list"
_NO_REMOVALS = Scope({"whole": True, "removals": False}, sql.SQL("false"))


def upstream_of(
    declared: Upstream | Callable[[Settings], Upstream] | None,
    dataset: Dataset,
    settings: Settings,
) -> Upstream:
    """Return the upstream of a strategy; by default one of the source's name, of few requests."""
    if declared is None:
        return Upstream(
            dataset.source,
            day_limit=500,
            minute_limit=60,
            lanes=(Lane("daily", early=True),),
            opening_seconds=0,
        )
    return declared if isinstance(declared, Upstream) else declared(settings)


def no_headers(_: Settings) -> Mapping[str, str]:
    """Send no headers beyond those that HTTP needs."""
    return {}


@dataclass(frozen=True)
class WholeList:
    """Download a list, and make the dataset equal to it.

    `parse` returns the elements of the downloaded file, `record` turns one into a record: a
    `Record`, or a pair of key and body, which is also what `parse` itself may return. An element
    for which `record` raises is quarantined and its record stays in the mirror; if `parse` raises,
    the run fails. `url` and `headers` may depend on the settings.
    """

    url: str | Callable[[Settings], str]
    parse: Callable[[Path], Iterable[Any]]
    record: ToRecord = as_record
    cron: str | None = "0 5 * * *"
    upstream: Upstream | Callable[[Settings], Upstream] | None = None
    lane: str = "daily"
    headers: Callable[[Settings], Mapping[str, str]] = no_headers
    timeout_seconds: float = 600.0
    max_bytes: int = DEFAULT_MAX_BYTES
    pauses: tuple[float, ...] = DEFAULT_PAUSES
    raw_retention_days: int = 30

    def job(self, dataset: Dataset, name: str | None = None) -> Job:
        """Return the job that synchronises the dataset; by default it is named `<dataset>_sync`."""
        return Job(
            name or f"{dataset.name}_sync",
            partial(self._run, dataset),
            msg("Downloads the list of {dataset} and updates the dataset.", dataset=dataset.name),
            cron=self.cron,
            lane=self.lane,
            options={},
            source=dataset.source,
        )

    async def rebuild(
        self,
        store: Store,
        settings: Settings,
        dataset: Dataset,
        *,
        run: int | None = None,
        approving: int | None = None,
        on_progress: OnResponses | None = None,
    ) -> RebuildSummary:
        """Recompute the dataset from the list that was applied last.

        Records that could not be read in it are those of the lists before.
        """
        records: dict[str, Record] = {}
        read = unreadable = 0
        async with Reconcile.begin(store, [dataset]) as work:
            wanted: set[str] | None = None
            async with store.connection() as conn:
                async for response in iter_applied(conn, dataset.name, "lists"):
                    async with open_stored(settings, response) as file:
                        found = await self._parse(file, dataset)
                    for key, record in found.records.items():
                        if wanted is None or key in wanted:
                            records.setdefault(key, record)
                    read += 1
                    if read == 1:
                        unreadable = len(found.unreadable)
                    if on_progress is not None:
                        await on_progress(read)
                    if not found.has_unknown:
                        missing = found.unreadable_keys
                        missing = missing if wanted is None else missing & wanted
                        wanted = missing - records.keys()
                        if not wanted:
                            break
            if not read:
                raise nothing_stored(dataset)
            result = await rebuild_from(work, dataset, records, run=run, approving=approving)
        return RebuildSummary(read, unreadable, result)

    async def _run(self, dataset: Dataset, context: RunContext) -> Outcome:
        if context.approving is not None:
            async with context.inputs() as files:
                return await self._apply(dataset, context, files[_INPUT])
        await context.progress(0, None, msg("fetching the list"))
        file = await self._fetch(dataset, context)
        validators = {name: value for name, value in file.facts.items() if name != "url"}
        try:
            return await self._apply(dataset, context, file.path, validators)
        except BrokenAnswerError:
            invalidate_download(file.path)
            raise

    async def _apply(
        self,
        dataset: Dataset,
        context: RunContext,
        file: Path,
        validators: Mapping[str, str] = {},
    ) -> Outcome:
        """Store the file as it was sent, and make the dataset equal to it."""
        # A query may contain a key.
        address = self.address(context.settings).partition("?")[0]
        raw = RawRequest(dataset.source, dataset.name, address, headers=validators)
        number = await store_file(context.store, context.settings, raw, file, run=context.run_id)
        await self._expire(dataset, context)
        await context.progress(0, None, msg("reading the list"))
        found = await self._parse(file, dataset)
        return await self._commit(dataset, context, found, number, file)

    async def _expire(self, dataset: Dataset, context: RunContext) -> None:
        """Delete old responses; a failure does not fail the run, and the next one tries again."""
        try:
            await expire_responses(
                context.store, context.settings, dataset.name, self.raw_retention_days
            )
        except (HasatError, OSError) as error:
            context.log.warning("raw.not_expired", error=str(error))

    def address(self, settings: Settings) -> str:
        """Return the address of the list."""
        return self.url if isinstance(self.url, str) else self.url(settings)

    def upstream_for(self, dataset: Dataset, settings: Settings) -> Upstream:
        """Return the upstream of the list, with its limits."""
        return upstream_of(self.upstream, dataset, settings)

    async def _fetch(self, dataset: Dataset, context: RunContext) -> DownloadedFile:
        settings = context.settings
        limits = self.upstream_for(dataset, settings)
        async with Budget(context.store, limits, waiting=context.waiting) as budget:
            downloader = Downloader(
                budget,
                RequestContext(self.lane, context.job.name, context.run_id),
                pauses=self.pauses,
            )
            try:
                return await downloader.fetch(
                    Download(
                        self.address(settings),
                        settings.home / dataset.source / "lists" / f"{dataset.name}.list",
                        msg("The list of {dataset}", dataset=dataset.name),
                        timeout_seconds=self.timeout_seconds,
                        max_bytes=self.max_bytes,
                        private_networks=settings.webhooks.private_networks,
                        headers=self.headers(settings),
                    )
                )
            finally:
                context.count_requests(downloader.sent)

    async def _parse(self, file: Path, dataset: Dataset) -> ParsedRecords:
        def parse() -> ParsedRecords:
            return parse_records(self.parse(file), self.record, dataset.name)

        try:
            return await asyncio.to_thread(parse)
        except Exception as error:
            raise BrokenAnswerError(
                msg(
                    "The list of {dataset} cannot be read: {why}. Nothing was changed.",
                    dataset=dataset.name,
                    why=f"{type(error).__name__}: {error}".rstrip("."),
                ),
                remedy=msg("The next run downloads it again; raw.response has what was received."),
            ) from error

    async def _commit(
        self, dataset: Dataset, context: RunContext, found: ParsedRecords, number: int, file: Path
    ) -> Outcome:
        async with Reconcile.begin(context.store, [dataset]) as work:
            await work.stage(dataset, found.records.values())
            # Of a record without a readable key it is unknown which one it is.
            removes = work.is_empty(dataset) or not found.has_unknown
            scope = WHOLE if removes else _NO_REMOVALS
            counts = await work.diff(dataset, scope, found.unreadable_keys)
            name, limits = dataset.name, dataset.guard
            before = await last_applied_size(work.connection, name)
            now = file.stat().st_size
            measures = [
                *measure_changes({name: counts}, limits),
                *(measure_size(name, before, now, limits) if before else ()),
                measure_unreadable(name, len(found.unreadable), len(found.records), limits),
            ]
            await check_guard(
                work, [dataset], measures, approving=context.approving, inputs={_INPUT: file}
            )
            await quarantine(work.connection, dataset.source, context.run_id, found.unreadable)
            await mark_applied(work.connection, number)
            await work.write(
                run=context.run_id,
                retention_days=dataset.retention_days,
                approving=context.approving,
            )
            outcome = Outcome(
                "done" if counts.total else "nothing",
                rows_changed=counts.total,
                detail={**counts_json(counts), "unreadable": len(found.unreadable)},
            )
            await context.conclude(work.connection, outcome)
        return outcome


def nothing_stored(dataset: Dataset) -> NothingToDoError:
    """Return the error of a rebuild without responses."""
    return NothingToDoError(
        msg("There are no stored responses of {dataset}.", dataset=dataset.name),
        remedy=msg("The tables were not changed."),
    )


async def rebuild_from(
    work: Reconcile,
    dataset: Dataset,
    records: Mapping[str, Record],
    *,
    run: int | None,
    approving: int | None,
    retention_days: int | None = None,
) -> list[RebuildResult]:
    """Make the dataset equal to these records, in the transaction of the reconcile."""
    staged = StagedRebuild(work, [dataset])
    await staged.open()
    remaining = iter(records.values())
    while batch := list(islice(remaining, _BATCH)):
        await staged.add(dataset.name, pack(batch))
    days = dataset.retention_days if retention_days is None else retention_days
    return await staged.finish(run=run, retention_days=days, approving=approving)
