"""Publish every change of every dataset to NATS JetStream, exactly once and in order.

Each dataset has its own stream. The last message of the stream (its id is epoch:seq) says where to
continue, so a kill at any moment neither skips nor repeats. Every message names the stream sequence
it must follow: JetStream rejects duplicates, messages out of order, and those of a second publisher
that has lost its lease.

An empty stream continues from the position in the database, after a control message: consumers may
have missed what was deleted, purged or expired. A failure of one stream does not stop the others,
and is stored for every process to read (`jetstream_state`).
"""

import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import nats
import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import Header, RetentionPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import BadRequestError, NotFoundError

from hasat.clock import local_time
from hasat.deliver.jetstream_batches import Outgoing, Pipeline
from hasat.deliver.outbox import LEASE_SECONDS, hold_lease
from hasat.errors import DatabaseError, UnavailableError
from hasat.feed.changes import Change, ExpiredError, changes_after, head_of
from hasat.feed.cursor import Cursor, Head
from hasat.messages import msg
from hasat.settings.platform_sections import Nats
from hasat.store import Store
from hasat.store.queries import load_query

Body = dict[str, Any]
NATS_ERRORS = (NatsError, UnavailableError, TimeoutError)

_BATCH = 200
# Room for headers below the server's limit for a whole message.
_HEADER_BYTES = 1_024

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class StreamPosition:
    """The published position of a dataset and the sequence of its stream's last message.

    Without an epoch, nothing was published yet.
    """

    epoch: UUID | None
    seq: int
    stream_sequence: int
    is_lost: bool = False
    """Whether the stream no longer has what was published up to here."""


class JetStreamSink:
    """Publishes the changes that the streams lack."""

    def __init__(
        self, store: Store, settings: Nats, holder: UUID, *, lease_seconds: float = LEASE_SECONDS
    ) -> None:
        self._store = store
        self._lease_seconds = lease_seconds
        self._settings = settings
        self._holder = holder
        self._client: Client | None = None
        self._jetstream: JetStreamContext
        self._pipeline: Pipeline
        self._held_at = float("-inf")
        self._positions: dict[str, StreamPosition] = {}

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Connect for the duration of the block; positions are read again from the streams."""
        assert self._settings.url is not None
        self._positions.clear()
        try:
            client = await nats.connect(
                self._settings.url.get_secret_value().split(","),
                name="hasat",
                user_credentials=str(self._settings.credentials)
                if self._settings.credentials
                else None,
                # After a break the positions must be read again, so a new connection is made.
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=1,
                error_cb=_log_error,
            )
        except (OSError, NatsError) as error:
            unavailable = UnavailableError(
                msg("NATS cannot be reached: {error}.", error=str(error) or type(error).__name__),
                remedy=msg(
                    "Check nats.url and that the server is running; the connection is retried."
                ),
            )
            await self._save_failure(None, unavailable)
            raise unavailable from error
        self._client = client
        self._jetstream = client.jetstream()
        self._pipeline = Pipeline(client)
        try:
            await self._pipeline.open()
            yield
        finally:
            self._client = None
            await client.close()

    async def publish_pending(self) -> None:
        """Publish until every dataset is up to date, while this process holds the lease.

        Raises the first failure after the other datasets were published.
        """
        failed: Exception | None = None
        for dataset in await self._behind():
            try:
                while await self._holds_lease() and not await self._publish_some(dataset):
                    pass
            except DatabaseError:
                raise
            except NATS_ERRORS as error:
                await self._save_failure(dataset, error)
                if self._client is None or not self._client.is_connected:
                    raise
                failed = failed or error
        if failed is not None:
            raise failed

    async def _holds_lease(self) -> bool:
        before, self._held_at = self._held_at, time.monotonic()
        held = await hold_lease(self._store, "nats", self._holder, self._lease_seconds)
        if not held or self._held_at - before > self._lease_seconds / 2:
            # Another process may have published meanwhile.
            self._positions.clear()
        return held

    async def _behind(self) -> list[str]:
        """Return the datasets with changes that are not known to be published."""
        async with self._store.connection() as conn:
            cursor = await conn.execute(load_query("hasat.deliver", "behind"))
            return [row[0] for row in await cursor.fetchall()]

    async def _publish_some(self, dataset: str) -> bool:
        """Publish the next changes; return whether the dataset is up to date."""
        info = await self._stream(dataset)
        # Until this batch is confirmed, the position must be read from the stream.
        position = self._positions.pop(dataset, None)
        if position is None or info.state.messages == 0:
            position = await self._read_position(dataset, info)
        async with self._store.connection() as conn:
            head = await head_of(conn, dataset)
            cursor = Cursor(dataset, position.epoch or head.epoch, position.seq)
            try:
                page = await changes_after(conn, dataset, cursor, limit=_BATCH)
            except ExpiredError:
                page = None
        if position.epoch is None:
            page = None
        if page is None:
            position = await self._start_over(dataset, position, head)
        elif position.is_lost:
            position = await self._send_control(dataset, position, "gap", cursor)
        if page is not None and page.changes:
            position = await self._publish(dataset, position, page.changes)
        await self._save(dataset, position)
        await self._clear_failure(dataset)
        self._positions[dataset] = position
        return page is not None and page.up_to_date

    async def _read_position(self, dataset: str, info: StreamInfo) -> StreamPosition:
        """Return the end of the stream, or the position in the database if it is empty."""
        last = info.state.last_seq
        # Backwards: an operator may have deleted single messages at the end.
        for sequence in range(last, max(info.state.first_seq, 1) - 1, -1):
            with suppress(NotFoundError):
                message = await self._jetstream.get_msg(self._stream_name(dataset), seq=sequence)
                found = _parse_id((message.headers or {}).get(Header.MSG_ID, ""))
                if found is not None:
                    await self._advance(dataset, *found)
                    return StreamPosition(*found, last)
        async with self._store.connection() as conn:
            cursor = await conn.execute(
                "SELECT epoch, seq FROM deliver.position WHERE sink = 'nats' AND dataset = %s",
                [dataset],
            )
            row = await cursor.fetchone()
        epoch, seq = (None, 0) if row is None else row
        return StreamPosition(epoch, seq, last, is_lost=_is_lost(info, published=row is not None))

    async def _stream(self, dataset: str) -> StreamInfo:
        name = self._stream_name(dataset)
        try:
            return await self._jetstream.stream_info(name)
        except NotFoundError:
            pass
        try:
            created = await self._jetstream.add_stream(
                StreamConfig(
                    name=name,
                    description=f"Changes of {dataset}, by Hasat",
                    subjects=[f"{self._settings.subject}.{dataset}.>"],
                    storage=StorageType.FILE,
                    max_age=self._settings.max_age.total_seconds(),
                    num_replicas=self._settings.replicas,
                )
            )
        except BadRequestError as error:
            raise UnavailableError(
                msg(
                    "NATS refuses to create the stream {name}: {description}.",
                    name=name,
                    description=error.description,
                ),
                remedy=msg("Change nats.stream or nats.subject, or free space in NATS."),
            ) from error
        log.info("nats.stream_created", stream=name)
        return created

    async def _start_over(
        self, dataset: str, position: StreamPosition, head: Head
    ) -> StreamPosition:
        """Continue from the floor: the feed has no change that follows what was published."""
        if position.epoch is None:
            why = "gap" if position.is_lost else "start"
        elif position.epoch != head.epoch:
            why = "epoch"
        else:
            why = "gap" if position.seq < head.floor else "rewound"
        start = Cursor(dataset, head.epoch, head.floor)
        return await self._send_control(dataset, position, why, start)

    async def _send_control(
        self, dataset: str, position: StreamPosition, why: str, start: Cursor
    ) -> StreamPosition:
        """Publish that sequence numbers continue after this cursor."""
        body = {
            "control": why,
            "dataset": dataset,
            "epoch": str(start.epoch),
            "seq": start.seq,
            "cursor": str(start),
            "archive": f"/api/v1/{dataset}/archives/latest",
        }
        last = await self._send(
            dataset,
            position.stream_sequence,
            # A unique id, or a repetition would count as a duplicate.
            [("control", f"{start.epoch}:{start.seq}:{position.stream_sequence}", start, body)],
        )
        log.info("nats.control_published", dataset=dataset, control=why, seq=start.seq)
        return StreamPosition(start.epoch, start.seq, last)

    async def _publish(
        self, dataset: str, position: StreamPosition, changes: Sequence[Change]
    ) -> StreamPosition:
        assert position.epoch is not None
        last = await self._send(
            dataset,
            position.stream_sequence,
            [
                (
                    change.kind,
                    f"{position.epoch}:{change.seq}",
                    Cursor(dataset, position.epoch, change.seq),
                    _body(dataset, position.epoch, change),
                )
                for change in changes
            ],
        )
        return replace(position, seq=changes[-1].seq, stream_sequence=last)

    async def _send(
        self, dataset: str, follows: int, messages: Sequence[tuple[str, str, Cursor, Body]]
    ) -> int:
        """Publish messages and return the stream sequence of the last one."""
        sequences = await self._pipeline.publish(
            [
                Outgoing(
                    f"{self._settings.subject}.{dataset}.{kind}",
                    {
                        Header.MSG_ID.value: message_id,
                        Header.EXPECTED_STREAM.value: self._stream_name(dataset),
                        Header.EXPECTED_LAST_SEQUENCE.value: str(follows + offset),
                        "Hasat-Cursor": str(cursor),
                    },
                    self._encode(body),
                )
                for offset, (kind, message_id, cursor, body) in enumerate(messages)
            ]
        )
        return sequences[-1]

    def _encode(self, body: Body) -> bytes:
        encoded = _json(body)
        assert self._client is not None
        if len(encoded) + _HEADER_BYTES > self._client.max_payload:
            encoded = _json({**body, "body": None, "omitted": True})
        return encoded

    async def _save(self, dataset: str, position: StreamPosition) -> None:
        async with self._store.connection() as conn:
            await conn.execute(
                load_query("hasat.deliver", "save_position"),
                {"dataset": dataset, "epoch": position.epoch, "seq": position.seq},
            )

    async def _advance(self, dataset: str, epoch: UUID, seq: int) -> None:
        """Move the position to the end of the stream, if a batch was published only in part."""
        async with self._store.connection() as conn:
            await conn.execute(
                "UPDATE deliver.position SET seq = %(seq)s, at = clock_timestamp()"
                " WHERE sink = 'nats' AND dataset = %(dataset)s"
                " AND epoch = %(epoch)s AND seq < %(seq)s",
                {"dataset": dataset, "epoch": epoch, "seq": seq},
            )

    async def _save_failure(self, dataset: str | None, error: Exception) -> None:
        """Store why a dataset cannot be published; without one, for all that are behind."""
        async with self._store.connection() as conn:
            await conn.execute(
                load_query("hasat.deliver", "save_failure"),
                {
                    "dataset": dataset,
                    "error": str(error) or f"NATS does not respond ({type(error).__name__}).",
                    "holder": self._holder,
                },
            )

    async def _clear_failure(self, dataset: str) -> None:
        async with self._store.connection() as conn:
            await conn.execute(
                "DELETE FROM deliver.sink_failure WHERE sink = 'nats' AND dataset = %s", [dataset]
            )

    def _stream_name(self, dataset: str) -> str:
        return f"{self._settings.stream}_{dataset}"


def _body(dataset: str, epoch: UUID, change: Change) -> Body:
    return {
        "dataset": dataset,
        "epoch": str(epoch),
        "seq": change.seq,
        "version": change.version,
        "changeType": change.kind,
        "changedAt": local_time(change.changed_at),
        "key": change.key,
        "body": change.body,
    }


def _is_lost(info: StreamInfo, *, published: bool) -> bool:
    """Return whether consumers of an empty stream may have missed messages.

    A stream that removes acknowledged messages is empty when all consumers have everything.
    """
    if info.state.last_seq == 0:
        return published
    return info.config.retention in (None, RetentionPolicy.LIMITS)


def _parse_id(text: str) -> tuple[UUID, int] | None:
    epoch, _, rest = text.partition(":")
    try:
        return UUID(epoch), int(rest.partition(":")[0])
    except ValueError:
        return None


def _json(body: Body) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


async def _log_error(error: Exception) -> None:
    log.debug("nats.error", error=str(error) or type(error).__name__)
