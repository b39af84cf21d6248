"""The stored receipts: an append-only chain in which each receipt names the hash of the one before.

The name is in the signed header, so that only the owner of the private key can take a receipt out
of the chain, or change one, without breaking it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from psycopg import AsyncConnection
from psycopg.rows import class_row

from hasat.clock import ISTANBUL
from hasat.errors import HasatError, NotFoundError
from hasat.feed.changes import no_data_error
from hasat.feed.dataset import Dataset
from hasat.messages import msg, template
from hasat.receipts.jws import InvalidReceiptError, PublicKeys, key_id, receipt_hash, sign, verify
from hasat.receipts.keys import SigningKey, signing_key
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.queries import load_query

_PACKAGE = "hasat.receipts"
_PAGE = 500


class BrokenChainError(HasatError):
    """The stored receipts are not those that were issued."""

    code = "broken-chain"
    title = template("The chain of receipts is broken")


@dataclass(frozen=True)
class StoredReceipt:
    """A receipt with the caller that it belongs to."""

    number: int
    id: UUID
    identifier: str
    datasets: Sequence[str]
    owner: str
    kid: str
    issued_at: datetime
    jws: str
    hash: bytes


@dataclass(frozen=True)
class Consulted:
    """The origin of an answer: the versions of its datasets, and the lists they equal."""

    datasets: Sequence[str]
    committed_at: datetime
    version: Mapping[str, Any]
    lists: Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Chain:
    """The ends of the chain: its newest receipt, and the newest that has expired."""

    number: int
    hash: bytes
    floor: int
    floor_hash: bytes


async def consult(
    conn: AsyncConnection[Any], datasets: Sequence[Dataset], key: str, *, past: bool = False
) -> Consulted:
    """Return what the snapshot of this connection shows of the datasets.

    The lists are those of the newest version, so a question about the past (`past`) has none.
    """
    names = [dataset.name for dataset in datasets]
    cursor = await conn.execute(load_query(_PACKAGE, "versions"), {"datasets": names})
    rows = {row[0]: row[1:] for row in await cursor.fetchall()}
    if missing := [name for name in names if name not in rows]:
        raise no_data_error(missing[0])
    newest = max(row[-1] for row in rows.values())
    version: dict[str, Any] = {"committedAt": _moment(newest)}
    for name in names:
        epoch, seq, number, records, digest, committed_at = rows[name]
        version[name] = {
            "epoch": str(epoch),
            "seq": seq,
            "version": number,
            "records": records,
            "digest": digest.hex(),
            "committedAt": _moment(committed_at),
        }
    lists: dict[str, str] = {}
    for dataset in () if past else datasets:
        lists |= {name: sha256.hex() for name, sha256 in (await _lists(conn, dataset, key)).items()}
    return Consulted(
        names, newest, version, [{"name": name, "sha256": one} for name, one in lists.items()]
    )


async def _lists(conn: AsyncConnection[Any], dataset: Dataset, key: str) -> Mapping[str, bytes]:
    if dataset.lists is not None:
        return await dataset.lists(conn)
    values = {"dataset": dataset.name, "key": key}
    return dict(await (await conn.execute(load_query(_PACKAGE, "raw_lists"), values)).fetchall())


def _moment(moment: datetime) -> str:
    """Return a time with its zone: a receipt is read far from the server."""
    return moment.astimezone(ISTANBUL).isoformat(timespec="microseconds")


async def issue(
    store: Store,
    settings: Settings,
    consulted: Consulted,
    *,
    owner: str,
    identifier: str,
    request: Mapping[str, Any],
    response: Any,
) -> StoredReceipt:
    """Sign and store the receipt of an answer; receipts are appended one after the other."""
    key = signing_key(settings)
    async with store.primary.connection() as conn:
        row = await (await conn.execute(load_query(_PACKAGE, "lock_chain"))).fetchone()
        assert row is not None
        number, previous, now = row
        claims = {
            "iss": settings.receipts.issuer,
            "iat": int(now.timestamp()),
            "jti": str(uuid4()),
            "request": request,
            "response": response,
            "version": consulted.version,
            "lists": consulted.lists,
        }
        jws = sign(key.private, claims, previous)
        receipt = StoredReceipt(
            number + 1,
            UUID(claims["jti"]),
            identifier,
            consulted.datasets,
            owner,
            key.kid,
            now.replace(microsecond=0),
            jws,
            receipt_hash(jws),
        )
        values = {**vars(receipt), "datasets": list(receipt.datasets), "public_key": key.public}
        await conn.execute(load_query(_PACKAGE, "append"), values)
    return receipt


async def list_receipts(
    store: Store,
    *,
    owner: str | None,
    identifier: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[StoredReceipt]:
    """Return receipts, newest first; with an owner, only those that it asked for."""
    values = {
        "id": None,
        "identifier": identifier,
        "owner": owner,
        "before": before,
        "limit": limit,
    }
    return await store.rows(StoredReceipt, load_query(_PACKAGE, "find"), values)


async def find_receipt(store: Store, receipt: UUID, *, owner: str | None) -> StoredReceipt:
    """Return one receipt; with an owner, only if it asked for it."""
    values = {"id": receipt, "identifier": None, "owner": owner, "before": None, "limit": 1}
    found = await store.rows(StoredReceipt, load_query(_PACKAGE, "find"), values)
    if not found:
        raise NotFoundError(
            msg("There is no receipt {id}.", id=receipt),
            remedy=msg("A key sees only the receipts that it asked for itself."),
        )
    return found[0]


async def list_key(store: Store, key: SigningKey) -> None:
    """List a public key before its first receipt."""
    async with store.primary.connection() as conn:
        values = {"kid": key.kid, "public_key": key.public}
        await conn.execute(load_query(_PACKAGE, "list_key"), values)


async def listed_keys(store: Store) -> PublicKeys:
    """Return every public key that receipts were signed with, on any machine."""
    async with store.connection() as conn:
        rows = await (await conn.execute(load_query(_PACKAGE, "keys"))).fetchall()
    keys = [Ed25519PublicKey.from_public_bytes(public) for (public,) in rows]
    return {key_id(key): key for key in keys}


async def expire_receipts(conn: AsyncConnection[Any], retention: timedelta) -> int:
    """Delete the receipts that are older than the retention, and return their number."""
    row = await (await conn.execute("SELECT serve.forget_receipts(%s)", [retention])).fetchone()
    return 0 if row is None else int(row[0])


async def verify_chain(store: Store, keys: PublicKeys, *, newest: int | None = None) -> int:
    """Verify the signature and place of every stored receipt, or of the newest; return how many.

    Raises BrokenChainError at the first that was changed, is missing or was added.
    """
    count = 0
    async with store.snapshot() as conn:
        chain = await read_chain(conn)
        number, previous = chain.floor, chain.floor_hash
        if newest is not None and chain.number - newest > chain.floor:
            number = chain.number - newest
            cursor = await conn.execute(
                "SELECT hash FROM serve.receipt WHERE number = %s", [number]
            )
            row = await cursor.fetchone()
            if row is None:
                raise _missing(number)
            previous = row[0]
        while True:
            async with conn.cursor(row_factory=class_row(StoredReceipt)) as rows:
                await rows.execute(load_query(_PACKAGE, "links"), {"after": number, "limit": _PAGE})
                page = await rows.fetchall()
            for receipt in page:
                if receipt.number != number + 1:
                    raise _missing(number + 1)
                _check_link(receipt, previous, keys)
                number, previous = receipt.number, receipt.hash
            count += len(page)
            if len(page) < _PAGE:
                break
    if (number, previous) != (chain.number, chain.hash):
        raise _missing(min(number, chain.number) + 1)
    return count


def _check_link(receipt: StoredReceipt, previous: bytes, keys: PublicKeys) -> None:
    try:
        found = verify(receipt.jws, keys)
    except InvalidReceiptError as error:
        raise BrokenChainError(
            msg("Receipt {number} was changed: {reason}", number=receipt.number, reason=error)
        ) from error
    stored = (str(receipt.id), receipt.kid, receipt.issued_at, receipt.identifier, receipt.hash)
    signed = (
        found.claims["jti"],
        found.kid,
        found.issued_at,
        found.claims["request"].get("identifier"),
        receipt_hash(receipt.jws),
    )
    if stored != signed:
        raise BrokenChainError(
            msg(
                "Receipt {number} was changed: its row differs from what was signed.",
                number=receipt.number,
            )
        )
    if found.previous != previous:
        raise BrokenChainError(
            msg(
                "Receipt {number} does not follow the one before it: a receipt was removed or "
                "added.",
                number=receipt.number,
            )
        )


def _missing(number: int) -> BrokenChainError:
    return BrokenChainError(msg("Receipt {number} is missing.", number=number))


async def read_chain(conn: AsyncConnection[Any]) -> Chain:
    """Return the ends of the chain."""
    async with conn.cursor(row_factory=class_row(Chain)) as cursor:
        await cursor.execute(load_query(_PACKAGE, "chain"))
        chain = await cursor.fetchone()
    if chain is None:
        raise BrokenChainError(msg("The ends of the chain are missing."))
    return chain
