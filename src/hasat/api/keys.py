"""API keys: made once, kept as a digest, looked up from memory.

A key is `hsk_<id>_<secret>`: the id is public and names the key in lists and logs, the secret is
256 random bits of which only the SHA-256 digest is stored.
"""

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
import psycopg
import structlog
from psycopg.rows import class_row
from hasat.api.problems import CredentialsMalformedError, KeyExpiredError, KeyRevokedError, KeyUnknownError
from hasat.errors import DatabaseError, NotFoundError, NothingToDoError, UsageError
from hasat.http.routes import Access, Caller
from hasat.messages import msg
from hasat.store import Store
from hasat.store.audit import Actor, AuditEntry, describe_action, record_action
from hasat.store.queries import load_query

CACHE_SECONDS = 5.0
LOGIN_LIFETIME = timedelta(hours=12)
_AT_LEAST_SECONDS = 1.0
_NOTE_USE_SECONDS = 60.0
_FORM = re.compile(r"hsk_([a-z2-7]{10})_([A-Za-z0-9_-]{43})")
_ID_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_NOBODYS_DIGEST = secrets.token_bytes(32)

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ApiKey:
    """A key as an operator sees it."""

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

    @property
    def state(self) -> str:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expired else "active"

    def public(self) -> Mapping[str, Any]:
        """All there is to know about the key, apart from what could be used to become it."""
        shown = ("id", "name", "scope", "state", "per_minute", "created_at", "expires_at")
        return {name: getattr(self, name) for name in (*shown, "last_used_at", "revoked_at")}


async def create_key(
    store: Store,
    name: str,
    scope: Access = "read",
    lifetime: timedelta | None = None,
    made_from: str | None = None,
    per_minute: int | None = None,
) -> tuple[ApiKey, str]:
    """A new key and its token, which is nowhere else from now on.

    One that is made from another key (a login) ends with that one at the latest.
    """
    if not 1 <= len(name.strip()) <= 100:
        raise UsageError(msg("The name of a key has between 1 and 100 characters."))
    key_id = "".join(secrets.choice(_ID_LETTERS) for _ in range(10))
    secret = secrets.token_urlsafe(32)
    values = {
        "id": key_id,
        "name": name.strip(),
        "digest": _digest(secret),
        "scope": scope,
        "lifetime": lifetime,
        "made_from": made_from,
        "per_minute": per_minute,
    }
    async with store.connection() as conn, conn.cursor(row_factory=class_row(ApiKey)) as cursor:
        await cursor.execute(load_query("hasat.api", "key_create"), values)
        key = await cursor.fetchone()
        if key is not None:
            await record_action(conn, key.id, name=key.name, scope=key.scope)
    if key is None:
        raise CredentialsMalformedError(msg("This belongs to a login; a login needs a key."))
    return key, f"hsk_{key_id}_{secret}"


async def list_keys(store: Store, *, logins: bool = False) -> list[ApiKey]:
    """Every key, the revoked and the expired ones too; with `logins`, those made by logging in."""
    async with store.connection() as conn, conn.cursor(row_factory=class_row(ApiKey)) as cursor:
        await cursor.execute(load_query("hasat.api", "keys_list"), {"logins": logins})
        return await cursor.fetchall()


async def revoke_key(store: Store, key_id: str) -> ApiKey:
    """Revoke a key; servers notice within `CACHE_SECONDS`."""
    async with store.connection() as conn, conn.cursor(row_factory=class_row(ApiKey)) as cursor:
        await cursor.execute(load_query("hasat.api", "key_revoke"), {"id": key_id})
        if (key := await cursor.fetchone()) is not None:
            await record_action(conn, key.id, name=key.name, scope=key.scope)
            return key
    if any(key.id == key_id for key in await list_keys(store)):
        raise NothingToDoError(msg("The key {key_id} was revoked before.", key_id=key_id))
    raise NotFoundError(
        msg("There is no key with the id {key_id!r}.", key_id=key_id),
        remedy=msg("`hasat keys list` shows the ids."),
    )


async def limit_key(store: Store, key: str, per_minute: int | None) -> ApiKey:
    """Change the rate limit of a key, given by id or unique name; None restores the default."""
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
    values = {"id": found[0].id, "per_minute": per_minute}
    async with store.connection() as conn, conn.cursor(row_factory=class_row(ApiKey)) as cursor:
        await cursor.execute(load_query("hasat.api", "key_limit"), values)
        if (changed := await cursor.fetchone()) is None:
            raise NotFoundError(msg("The key {id} was deleted meanwhile.", id=found[0].id))
        await record_action(conn, changed.id, name=changed.name, per_minute=per_minute)
    return changed


async def log_in(store: Store, keys: "KeyCache", token: str) -> str:
    """A token for a browser, from a key: it may do the same and is worth little when it is lost."""
    caller = await keys.check(token)
    key_id = caller.id.removeprefix("key:")
    describe_action(actor=caller.name, kind="login", key=key_id)
    scope: Access = "operate" if "operate" in caller.scopes else "read"
    async with store.connection() as conn:
        await conn.execute(load_query("hasat.api", "logins_forget"))
    _, login = await create_key(store, caller.name, scope, LOGIN_LIFETIME, made_from=key_id)
    # The browser comes with it at once, sooner than a guesser would be listened to again.
    keys.read_again()
    return login


async def log_out(store: Store, token: str, address: str) -> None:
    """End a login and record it; what is none is left alone."""
    if form := _FORM.fullmatch(token):
        async with store.connection() as conn:
            cursor = await conn.execute(
                "UPDATE serve.api_key SET revoked_at = now()"
                " WHERE id = %s AND digest = %s AND made_from IS NOT NULL AND revoked_at IS NULL"
                " RETURNING name",
                [form[1], _digest(form[2])],
            )
            if (row := await cursor.fetchone()) is not None:
                await AuditEntry(Actor(row[0], "login", address), "logout", form[1]).write(conn)


class KeyCache:
    """The keys as this process knows them: all in memory, read again every few seconds."""

    def __init__(self, store: Store, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._keys: Mapping[str, ApiKey] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        self._use_noted: dict[str, float] = {}

    async def check(self, token: str) -> Caller:
        """Who holds this token; unknown ids and wrong secrets cannot be told apart."""
        form = _FORM.fullmatch(token)
        if form is None:
            raise CredentialsMalformedError(
                msg("This is not an API key of Hasat."),
                remedy=msg("A key has the form hsk_ID_SECRET."),
            )
        key_id, secret = form.groups()
        await self._read_if_older_than(CACHE_SECONDS)
        key = self._genuine(key_id, secret)
        if key is None:
            # It may have been made a moment ago by another process.
            await self._read_if_older_than(_AT_LEAST_SECONDS)
            key = self._genuine(key_id, secret)
        if key is None:
            raise KeyUnknownError(
                msg("No key of this server has this value."),
                remedy=msg(
                    "`hasat keys list` shows the keys there are; `hasat keys create` makes one."
                ),
            )
        if key.state == "revoked":
            raise KeyRevokedError(
                msg("The key {key_id} was revoked.", key_id=key.id), remedy=_NEW_KEY
            )
        if key.expired:
            raise KeyExpiredError(
                msg("The key {key_id} has expired.", key_id=key.id), remedy=_NEW_KEY
            )
        await self._note_use(key)
        scopes: frozenset[Access] = frozenset({"read", key.scope})
        return Caller(
            f"key:{key.id}",
            key.name,
            scopes,
            bucket=f"key:{key.made_from or key.id}",
            per_minute=key.per_minute,
        )

    def read_again(self) -> None:
        """Look the keys up anew at the next request."""
        self._read_at = float("-inf")

    def _genuine(self, key_id: str, secret: str) -> ApiKey | None:
        key = self._keys.get(key_id)
        known = key.digest if key else _NOBODYS_DIGEST
        return key if hmac.compare_digest(known, _digest(secret)) else None

    async def _read_if_older_than(self, seconds: float) -> None:
        if self._monotonic() - self._read_at <= seconds:
            return
        async with self._reading:
            asked_at = self._monotonic()
            if asked_at - self._read_at > seconds:
                self._keys = {key.id: key for key in await list_keys(self._store, logins=True)}
                self._read_at = asked_at

    async def _note_use(self, key: ApiKey) -> None:
        now = self._monotonic()
        if now - self._use_noted.get(key.id, float("-inf")) < _NOTE_USE_SECONDS:
            return
        self._use_noted[key.id] = now
        try:
            async with self._store.connection() as conn:
                await conn.execute(load_query("hasat.api", "key_used"), {"id": key.id})
        except (DatabaseError, psycopg.Error) as error:
            # Not worth refusing the request: the database may be read-only or just leaving.
            log.warning("the use of a key could not be noted", key=key.id, reason=str(error))


_NEW_KEY = msg("Ask the operator for a new one (`hasat keys create NAME`).")


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
