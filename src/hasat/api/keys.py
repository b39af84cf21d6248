"""API keys: stored as digests and checked from memory.

A key is `hsk_<id>_<secret>`: the id is public and identifies the key in lists and logs, the secret
is 256 random bits of which only the SHA-256 digest is stored.
"""

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import psycopg
import structlog
from psycopg.rows import class_row

from hasat.api.problems import (
    CredentialsMalformedError,
    KeyExpiredError,
    KeyRevokedError,
    KeyUnknownError,
)
from hasat.errors import DatabaseError, NotFoundError, NothingToDoError, UsageError
from hasat.http.routes import Access, Caller
from hasat.messages import msg
from hasat.store import Store
from hasat.store.audit import Actor, AuditEntry, describe_action, record_action
from hasat.store.queries import load_query

CACHE_SECONDS = 5.0
LOGIN_LIFETIME = timedelta(hours=12)
MIN_RELOAD_SECONDS = 1.0
_RECORD_USE_SECONDS = 60.0
_TOKEN = re.compile(r"hsk_([a-z2-7]{10})_([A-Za-z0-9_-]{43})")
_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_DUMMY_DIGEST = secrets.token_bytes(32)

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ApiKey:
    """An API key, without its secret."""

    id: str
    name: str
    scope: Access
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    expired: bool
    digest: bytes = field(repr=False)
    per_minute: int | None = None
    made_from: str | None = None
    datasets: list[str] | None = None
    """The only datasets that it may read; None for all."""

    @property
    def state(self) -> str:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expired else "active"

    def public(self) -> Mapping[str, Any]:
        """Return the fields that may be shown; the digest is not among them."""
        shown = ("id", "name", "scope", "datasets", "state", "per_minute", "created_at")
        return {
            name: getattr(self, name)
            for name in (*shown, "expires_at", "last_used_at", "revoked_at")
        }


async def create_key(
    store: Store,
    name: str,
    scope: Access = "read",
    lifetime: timedelta | None = None,
    made_from: str | None = None,
    per_minute: int | None = None,
    datasets: Sequence[str] | None = None,
) -> tuple[ApiKey, str]:
    """Create a key; return it and its token, which is not stored.

    A key made from another one (a login) expires with that one at the latest, and reads the same.
    """
    check_restriction(scope, datasets)
    if not 1 <= len(name.strip()) <= 100:
        raise UsageError(msg("The name of a key must have 1 to 100 characters."))
    key_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(10))
    secret = secrets.token_urlsafe(32)
    values = {
        "id": key_id,
        "name": name.strip(),
        "digest": _digest(secret),
        "scope": scope,
        "lifetime": lifetime,
        "made_from": made_from,
        "per_minute": per_minute,
        "datasets": None if datasets is None else sorted(set(datasets)),
    }
    async with store.connection() as conn, conn.cursor(row_factory=class_row(ApiKey)) as cursor:
        await cursor.execute(load_query("hasat.api", "create_key"), values)
        key = await cursor.fetchone()
        if key is not None:
            await record_action(conn, key.id, name=key.name, scope=key.scope)
    if key is None:
        raise CredentialsMalformedError(
            msg("This token belongs to a login; log in with an API key.")
        )
    return key, f"hsk_{key_id}_{secret}"


async def list_keys(store: Store, *, logins: bool = False) -> list[ApiKey]:
    """Return every key, including revoked and expired ones; with `logins`, also those of logins."""
    async with store.connection() as conn, conn.cursor(row_factory=class_row(ApiKey)) as cursor:
        await cursor.execute(load_query("hasat.api", "list_keys"), {"logins": logins})
        return await cursor.fetchall()


async def revoke_key(store: Store, key_id: str) -> ApiKey:
    """Revoke a key; servers notice within `CACHE_SECONDS`."""
    async with store.connection() as conn, conn.cursor(row_factory=class_row(ApiKey)) as cursor:
        await cursor.execute(load_query("hasat.api", "revoke_key"), {"id": key_id})
        if (key := await cursor.fetchone()) is not None:
            await record_action(conn, key.id, name=key.name, scope=key.scope)
            return key
    if any(key.id == key_id for key in await list_keys(store)):
        raise NothingToDoError(msg("The key {key_id} is already revoked.", key_id=key_id))
    raise NotFoundError(
        msg("There is no key with the id {key_id!r}.", key_id=key_id),
        remedy=msg("`hasat keys list` shows the ids."),
    )


def check_restriction(scope: Access, datasets: Sequence[str] | None) -> None:
    """Reject a restriction to no dataset, and one of a key that operates."""
    if datasets is not None and not datasets:
        raise UsageError(msg("A restricted key needs at least one dataset."))
    if datasets is not None and scope == "operate":
        raise UsageError(
            msg("A key with the scope operate cannot be restricted to datasets."),
            remedy=msg("Give the tenant a key with the scope read."),
        )


async def limit_key(store: Store, key: str, per_minute: int | None) -> ApiKey:
    """Change the rate limit of a key, given by id or unique name; None restores the default."""
    values = {"id": await _find_id(store, key), "per_minute": per_minute}
    return await _change_key(store, "set_key_limit", values, per_minute=per_minute)


async def restrict_key(store: Store, key: str, datasets: Sequence[str] | None) -> ApiKey:
    """Change which datasets a key may read, given by id or unique name; None for all."""
    number = await _find_id(store, key)
    [found] = [one for one in await list_keys(store) if one.id == number]
    check_restriction(found.scope, datasets)
    names = None if datasets is None else sorted(set(datasets))
    return await _change_key(
        store, "set_key_datasets", {"id": number, "datasets": names}, datasets=names
    )


async def _find_id(store: Store, key: str) -> str:
    known = await list_keys(store)
    active = [one for one in known if one.name == key and one.state == "active"]
    found = [one for one in known if one.id == key] or active
    if not found:
        raise NotFoundError(
            msg("There is no active key with the id or name {key!r}.", key=key),
            remedy=msg("`hasat keys list` shows the keys."),
        )
    if len(found) > 1:
        ids = ", ".join(one.id for one in found)
        raise UsageError(
            msg("{count} keys have the name {key!r}.", count=len(found), key=key),
            remedy=msg("Use an id: {ids}.", ids=ids),
        )
    return found[0].id


async def _change_key(store: Store, query: str, values: Mapping[str, Any], **detail: Any) -> ApiKey:
    async with store.connection() as conn, conn.cursor(row_factory=class_row(ApiKey)) as cursor:
        await cursor.execute(load_query("hasat.api", query), values)
        if (changed := await cursor.fetchone()) is None:
            raise NotFoundError(msg("The key {id} was deleted in the meantime.", id=values["id"]))
        await record_action(conn, changed.id, name=changed.name, **detail)
    return changed


async def log_in(store: Store, keys: "KeyCache", token: str) -> str:
    """Return a short-lived token for a browser with the scope of the given key."""
    caller = await keys.check(token)
    key_id = caller.id.removeprefix("key:")
    describe_action(actor=caller.name, kind="login", key=key_id)
    scope: Access = "operate" if "operate" in caller.scopes else "read"
    async with store.connection() as conn:
        await conn.execute(load_query("hasat.api", "delete_ended_logins"))
    _, login = await create_key(store, caller.name, scope, LOGIN_LIFETIME, made_from=key_id)
    # The browser uses the token at once, before the next regular reload.
    keys.invalidate()
    return login


async def log_out(store: Store, token: str, address: str) -> None:
    """End a login and record it; ignore a token that is not one of a login."""
    if match := _TOKEN.fullmatch(token):
        async with store.connection() as conn:
            cursor = await conn.execute(
                "UPDATE serve.api_key SET revoked_at = now()"
                " WHERE id = %s AND digest = %s AND made_from IS NOT NULL AND revoked_at IS NULL"
                " RETURNING name",
                [match[1], _digest(match[2])],
            )
            if (row := await cursor.fetchone()) is not None:
                await AuditEntry(Actor(row[0], "login", address), "logout", match[1]).write(conn)


class KeyCache:
    """All keys in memory, reloaded every few seconds."""

    def __init__(self, store: Store, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._keys: Mapping[str, ApiKey] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        self._use_recorded: dict[str, float] = {}

    async def check(self, token: str) -> Caller:
        """Return the caller of a token; an unknown id and a wrong secret give the same error."""
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise CredentialsMalformedError(
                msg("The value is not an API key of Hasat."),
                remedy=msg("A key has the form hsk_ID_SECRET."),
            )
        key_id, secret = match.groups()
        await self._reload_if_older_than(CACHE_SECONDS)
        key = self._find(key_id, secret)
        if key is None:
            # Another process may have created it a moment ago.
            await self._reload_if_older_than(MIN_RELOAD_SECONDS)
            key = self._find(key_id, secret)
        if key is None:
            raise KeyUnknownError(
                msg("No key of this server has this value."),
                remedy=msg("`hasat keys list` shows the keys; `hasat keys create` creates one."),
            )
        if key.state == "revoked":
            raise KeyRevokedError(
                msg("The key {key_id} was revoked.", key_id=key.id), remedy=_NEW_KEY
            )
        if key.expired:
            raise KeyExpiredError(
                msg("The key {key_id} has expired.", key_id=key.id), remedy=_NEW_KEY
            )
        await self._record_use(key)
        scopes: frozenset[Access] = frozenset({"read", key.scope})
        return Caller(
            f"key:{key.id}",
            key.name,
            scopes,
            bucket=f"key:{key.made_from or key.id}",
            per_minute=key.per_minute,
            datasets=None if key.datasets is None else frozenset(key.datasets),
        )

    def invalidate(self) -> None:
        """Reload the keys at the next request."""
        self._read_at = float("-inf")

    def _find(self, key_id: str, secret: str) -> ApiKey | None:
        key = self._keys.get(key_id)
        expected = key.digest if key else _DUMMY_DIGEST
        return key if hmac.compare_digest(expected, _digest(secret)) else None

    async def _reload_if_older_than(self, seconds: float) -> None:
        if self._monotonic() - self._read_at <= seconds:
            return
        async with self._reading:
            started_at = self._monotonic()
            if started_at - self._read_at > seconds:
                self._keys = {key.id: key for key in await list_keys(self._store, logins=True)}
                self._read_at = started_at

    async def _record_use(self, key: ApiKey) -> None:
        now = self._monotonic()
        if now - self._use_recorded.get(key.id, float("-inf")) < _RECORD_USE_SECONDS:
            return
        self._use_recorded[key.id] = now
        try:
            async with self._store.connection() as conn:
                await conn.execute(load_query("hasat.api", "record_key_use"), {"id": key.id})
        except (DatabaseError, psycopg.Error) as error:
            # No reason to reject the request: the database may be read-only or shutting down.
            log.warning("key.use_not_recorded", key=key.id, reason=str(error))


_NEW_KEY = msg("Ask the operator for a new key (`hasat keys create NAME`).")


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
