"""Webhooks: sent after the commit, in order, signed, retried, and never to private addresses."""

import asyncio
import base64
import hashlib
import hmac
import json
import random
import shutil
import ssl
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from hasat.deliver import Event, publish_event
from hasat.deliver.dispatcher import Dispatcher, pause_after
from hasat.deliver.events import publish_health_changes, publish_versions
from hasat.deliver.outbox import (
    count_deliveries,
    create_deliveries,
    delete_expired,
    get_delivery,
    list_deliveries,
    replay,
    subscribe,
)
from hasat.deliver.payloads import Payload
from hasat.deliver.webhook_endpoints import endpoints_of
from hasat.deliver.webhooks import AttemptResult, send
from hasat.errors import ConflictError, SettingsError
from hasat.feed.cursor import Cursor
from hasat.fetch import addresses
from hasat.settings import Settings, load_settings
from hasat.store import Store
from hasat.testing.database import ThrowAwayDatabase
from support.feed_toys import TOYS, make_table, run
from support.receivers import Behave, Received, Receiver, answer, endless, receiving, reset, slow

pytestmark = pytest.mark.anyio

SECRET = "gizli-anahtar"
COMPLETED = Event(
    "SyncCompleted",
    "Info",
    "GIB mükellef listesi senkronizasyonu başarıyla tamamlandı.",
    {"Duration": "00:00:01.000", "EInvoice": {"Added": 1, "TotalCount": 1_048_576}},
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def settings(database: ThrowAwayDatabase, tmp_path: Path, receiver: Receiver) -> Settings:
    return settings_with(database, tmp_path, receiver)


def settings_with(
    database: ThrowAwayDatabase, home: Path, receiver: Receiver, **more: str
) -> Settings:
    return load_settings(
        environ={
            "HASAT_HOME": str(home),
            "HASAT_DATABASE_URL": database.url,
            "HASAT_WEBHOOKS_PRIVATE_NETWORKS": "127.0.0.0/8",
            "Webhooks__Enabled": "true",
            "Webhooks__ServiceName": "GibUserListService",
            "Webhooks__Environment": "Üretim",
            "Webhooks__Http__Enabled": "true",
            "Webhooks__Http__Url": receiver.url,
            "Webhooks__Http__Secret": SECRET,
            "Webhooks__Http__TimeoutSeconds": "5",
            **more,
        }
    )


def deliverer(store: Store, settings: Settings, **options: Any) -> Dispatcher:
    return Dispatcher(store, settings, first_pause_seconds=0.01, **options)


async def publish(store: Store, *events: Event) -> None:
    for event in events:
        async with store.connection() as conn:
            await publish_event(conn, event)


def numbered(count: int) -> list[Event]:
    return [Event("SyncCompleted", "Info", str(n), {"n": n}) for n in range(count)]


async def eventually(condition: Callable[[], Any], what: str) -> None:
    for _ in range(1500):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"did not happen: {what}")


async def settled(store: Store, count: int) -> None:
    states: list[str] = []
    for _ in range(1500):
        states = [one.state for one in await list_deliveries(store, limit=1000)]
        if len(states) == count and "waiting" not in states:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"not all {count} were settled: {states}")


async def test_an_event_is_told_if_and_only_if_its_transaction_commits(
    store: Store, settings: Settings, receiver: Receiver
) -> None:
    await subscribe(store, endpoints_of(settings))
    with pytest.raises(RuntimeError):
        async with store.connection() as conn:
            await publish_event(conn, Event("SyncFailed", "Critical", "never"))
            raise RuntimeError
    async with store.connection() as conn:
        await publish_event(conn, COMPLETED)
        # Not before the commit either, however long that takes.
        async with deliverer(store, settings).running():
            assert await create_deliveries(store) == 0
    async with deliverer(store, settings).running():
        await settled(store, 1)
    assert [one.json["summary"] for one in receiver.received] == [COMPLETED.summary]


async def test_body_headers_and_signatures_are_the_originals_and_the_standards(
    store: Store, settings: Settings, receiver: Receiver
) -> None:
    await subscribe(store, endpoints_of(settings))
    await publish(store, COMPLETED)
    async with deliverer(store, settings).running():
        await settled(store, 1)
    [got] = receiver.received
    body = got.json
    assert set(body) == {"eventType", "severity", "summary", "timestamp", "payload"}
    assert body["eventType"] == got.headers["x-webhook-event"] == "SyncCompleted"
    assert body["severity"] == "Info"
    assert body["payload"]["EInvoice"] == {"Added": 1, "TotalCount": 1_048_576}
    assert body["payload"]["serviceName"] == "GibUserListService"
    assert body["payload"]["environment"] == "Üretim"
    assert body["timestamp"] == got.headers["x-webhook-timestamp"]
    assert datetime.fromisoformat(body["timestamp"]).utcoffset() == timedelta(hours=3)
    assert got.headers["x-webhook-servicename"] == "GibUserListService"
    assert json.loads(f'"{got.headers["x-webhook-environment"]}"') == "Üretim"
    signature = hmac.new(SECRET.encode(), got.body, hashlib.sha256).hexdigest()
    assert got.headers["x-webhook-signature"] == f"sha256={signature}"
    independent = Webhook(base64.b64encode(SECRET.encode()).decode())
    assert independent.verify(got.body, dict(got.headers)) == body


async def test_a_secret_of_the_standard_form_is_understood(
    store: Store, database: ThrowAwayDatabase, tmp_path: Path, receiver: Receiver
) -> None:
    secret = "whsec_" + base64.b64encode(bytes(range(32))).decode()
    settings = settings_with(database, tmp_path, receiver, Webhooks__Http__Secret=secret)
    await subscribe(store, endpoints_of(settings))
    await publish(store, COMPLETED)
    async with deliverer(store, settings).running():
        await settled(store, 1)
    Webhook(secret).verify(receiver.received[0].body, dict(receiver.received[0].headers))


async def test_order_is_kept_whatever_goes_wrong(
    store: Store, settings: Settings, receiver: Receiver
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    faults: list[Behave] = [
        answer(500, b"broken"),
        answer(302, Location="http://127.0.0.1:1/elsewhere"),
        answer(429, Retry_After="0"),
        reset,
        endless(503),
    ]
    tries: Counter[str] = Counter()

    def behave(_: int, got: Received) -> Behave:
        tries[got.id] += 1
        good = [answer(200), endless(200)]
        return dice.choice(good if tries[got.id] > 3 else [*faults, *good])

    receiver.behave = behave
    patient = settings.webhooks.model_copy(update={"max_attempts": 1000})
    await subscribe(store, endpoints_of(settings))
    await publish(store, *numbered(15))
    async with deliverer(store, settings.model_copy(update={"webhooks": patient})).running():
        await settled(store, 15)
    order = [one.json["payload"]["n"] for one in receiver.received]
    assert order == sorted(order)
    assert set(order) == set(range(15))
    # Every try of the same event has the same id, and no two events share one.
    assert len({one.id for one in receiver.received}) == 15
    assert len({(one.id, n) for one, n in zip(receiver.received, order, strict=True)}) == 15
    assert receiver.max_concurrent == 1


async def test_what_cannot_be_delivered_is_a_dead_letter_and_can_be_replayed(
    store: Store, database: ThrowAwayDatabase, tmp_path: Path, receiver: Receiver
) -> None:
    settings = settings_with(database, tmp_path, receiver, HASAT_WEBHOOKS_MAX_ATTEMPTS="3")
    receiver.behave = lambda _, got: answer(500 if got.json["payload"]["n"] == 0 else 200, b"no")
    await subscribe(store, endpoints_of(settings))
    await publish(store, *numbered(2))
    async with deliverer(store, settings).running():
        await settled(store, 2)
    assert [one.json["payload"]["n"] for one in receiver.received] == [0, 0, 0, 1]
    [dead] = await list_deliveries(store, state="dead")
    assert (dead.attempts, dead.last_status, dead.last_error) == (
        3,
        500,
        "It responded with 500: no",
    )
    [tally] = await count_deliveries(store)
    assert (tally.waiting, tally.delivered, tally.dead) == (0, 1, 1)

    receiver.behave = lambda *_: answer(200)
    assert await replay(store) == [dead.id]
    with pytest.raises(ConflictError):
        await replay(store, [dead.id])
    async with deliverer(store, settings).running():
        await settled(store, 2)
    assert receiver.received[-1].id == receiver.received[0].id
    assert (await get_delivery(store, dead.id)).state == "delivered"
    assert await replay(store) == []


async def test_age_ends_the_tries_too_and_gone_at_once(
    store: Store, database: ThrowAwayDatabase, tmp_path: Path, receiver: Receiver
) -> None:
    settings = settings_with(database, tmp_path, receiver, HASAT_WEBHOOKS_MAX_AGE="1ms")
    receiver.behave = lambda *_: answer(503)
    await subscribe(store, endpoints_of(settings))
    await publish(store, COMPLETED)
    async with deliverer(store, settings).running():
        await settled(store, 1)
    assert len(receiver.received) == 1

    settings = settings_with(database, tmp_path, receiver)
    receiver.behave = lambda *_: answer(410)
    await replay(store)
    async with deliverer(store, settings).running():
        await settled(store, 1)
    assert len(receiver.received) == 2
    assert [one.last_status for one in await list_deliveries(store, state="dead")] == [410]


async def test_a_slow_endpoint_holds_up_only_itself(
    store: Store, database: ThrowAwayDatabase, tmp_path: Path, receiver: Receiver
) -> None:
    with receiving() as sluggish:
        sluggish.behave = lambda *_: slow(30)
        endpoint = {"name": "slow", "url": sluggish.url, "timeout_seconds": 0.2}
        settings = settings_with(
            database, tmp_path, receiver, HASAT_WEBHOOKS_ENDPOINTS=json.dumps([endpoint])
        )
        await subscribe(store, endpoints_of(settings))
        await publish(store, *numbered(3))
        async with deliverer(store, settings).running():
            await eventually(lambda: len(receiver.received) == 3, "the quick one has all")
            await eventually(lambda: len(sluggish.received) >= 2, "the slow one is tried again")
    waiting = await list_deliveries(store, endpoint="slow", state="waiting")
    assert "within 0.2 seconds" in str(waiting[-1].last_error)
    assert {one.json["payload"]["n"] for one in sluggish.received} == {0}


async def test_an_endpoint_gets_what_it_asked_for(
    store: Store, database: ThrowAwayDatabase, tmp_path: Path, receiver: Receiver
) -> None:
    with receiving() as follower:
        endpoint = {"name": "f", "url": follower.url, "notify_on": ["datasetchanged"]}
        settings = settings_with(
            database, tmp_path, receiver, HASAT_WEBHOOKS_ENDPOINTS=json.dumps([endpoint])
        )
        await make_table(store)
        await run(store, {"a": {"v": 1}})
        await subscribe(store, endpoints_of(settings))
        await run(store, {"a": {"v": 2}, "b": {"v": 1}})
        await run(store, {"a": {"v": 2}, "b": {"v": 1}})
        await publish(store, COMPLETED)
        async with deliverer(store, settings).running():
            await settled(store, 2)
    assert [one.json["eventType"] for one in receiver.received] == ["SyncCompleted"]
    [changed] = [one.json for one in follower.received]
    assert changed["eventType"] == "DatasetChanged"
    facts = changed["payload"]
    assert (facts["dataset"], facts["head"]) == (TOYS.name, 2)
    assert (facts["added"], facts["modified"], facts["removed"]) == (1, 1, 0)
    assert facts["keys"] == [
        {"key": "a", "changeType": "modified"},
        {"key": "b", "changeType": "added"},
    ]
    assert (Cursor.parse(facts["after"]).seq, Cursor.parse(facts["cursor"]).seq) == (0, 2)


async def test_slack_gets_blocks_in_turkish(
    store: Store, database: ThrowAwayDatabase, tmp_path: Path, receiver: Receiver
) -> None:
    settings = settings_with(
        database,
        tmp_path,
        receiver,
        Webhooks__Http__Enabled="false",
        Webhooks__Slack__Enabled="true",
        Webhooks__Slack__WebhookUrl=receiver.url,
        Webhooks__Slack__Channel="#gib",
        Webhooks__Slack__Username="GIB Sync Bot",
    )
    failed = Event("SyncFailed", "Critical", "HATALI", {"Error": "<!channel> & co"})
    await subscribe(store, endpoints_of(settings))
    await publish(store, COMPLETED, failed)
    async with deliverer(store, settings).running():
        await settled(store, 2)
    report, problem = (one.json for one in receiver.received)
    assert (report["channel"], report["username"]) == ("#gib", "GIB Sync Bot")
    [attachment] = report["attachments"]
    assert attachment["blocks"][0]["text"]["text"] == "✅ GİB Senkronizasyon Raporu"
    assert "Toplam: `1.048.576`" in json.dumps(attachment, ensure_ascii=False)
    # What an upstream says can neither call people nor break out of its block.
    assert "&lt;!channel&gt; &amp; co" in json.dumps(problem, ensure_ascii=False)
    assert "<!channel>" not in json.dumps(problem)
    assert "webhook-signature" not in receiver.received[0].headers


async def test_health_is_told_when_it_changes_and_once_over_all_machines(store: Store) -> None:
    for status in ("Degraded", "Degraded", "Healthy", "Healthy", "Degraded"):

        async def health(status: str = status) -> dict[str, dict[str, Any]]:
            return {"sync_freshness": {"status": status, "description": "old"}}

        await asyncio.gather(*(publish_health_changes(store, health) for _ in range(5)))
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT severity, payload FROM deliver.event ORDER BY id")
        rows = await cursor.fetchall()
    assert [(severity, body["NewStatus"]) for severity, body in rows] == [
        ("Info", "Healthy"),
        ("Warning", "Degraded"),
    ]


async def test_versions_are_announced_once_by_many(store: Store) -> None:
    await make_table(store)
    await run(store, {"a": {"v": 0}})
    await publish_versions(store)
    for n in range(1, 6):
        await run(store, {"a": {"v": n}})
        await asyncio.gather(*(publish_versions(store) for _ in range(4)))
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT payload FROM deliver.event ORDER BY id")
        assert [row[0]["head"] for row in await cursor.fetchall()] == [0, 1, 2, 3, 4, 5]


async def test_old_events_are_forgotten_and_what_nobody_sends_is_given_up(
    store: Store, settings: Settings
) -> None:
    await subscribe(store, endpoints_of(settings))
    await publish(store, *numbered(3))
    await create_deliveries(store)
    async with store.connection() as conn:
        await conn.execute("UPDATE deliver.event SET at = at - interval '31 days' WHERE id < 3")
        await conn.execute(
            "UPDATE deliver.delivery SET state = 'delivered', settled_at = now() WHERE event = 1"
        )
        await conn.execute(
            "UPDATE deliver.delivery SET waiting_since = now() - interval '2 days' WHERE event = 3"
        )
    await delete_expired(store, settings.webhooks, endpoints_of(settings))
    assert [one.state for one in await list_deliveries(store)] == ["waiting", "waiting"]
    await delete_expired(store, settings.webhooks, [])
    assert [one.state for one in await list_deliveries(store)] == ["dead", "waiting"]


# Where messages may go.

HELLO = Payload(b"{}", {"Content-Type": "application/json"})


async def try_to_post(url: str, *networks: str, **options: Any) -> AttemptResult:
    return await send(
        url,
        HELLO,
        timeout_seconds=5,
        private_networks=networks,
        now=datetime.now(UTC),
        **options,
    )


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "0.0.0.0",  # noqa: S104
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "[fec0::1]",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "2130706433",
        "0x7f.1",
    ],
)
async def test_no_message_goes_to_a_private_address(host: str, receiver: Receiver) -> None:
    got = await try_to_post(f"http://{host}:{receiver.port}/hook")
    assert "no public address" in str(got.error)
    assert receiver.received == []


async def test_a_name_that_changes_its_address_after_the_check_is_not_followed() -> None:
    with receiving("127.0.0.2") as meant, receiving("127.0.0.1", meant.port) as victim:
        answers = iter([["127.0.0.2"], ["127.0.0.1"], ["127.0.0.2", "127.0.0.1"]])

        async def rebinding(host: str, port: int) -> list[str]:
            assert (host, port) == ("hooks.example", meant.port)
            return next(answers)

        url = f"http://hooks.example:{meant.port}/hook"
        good = await try_to_post(url, "127.0.0.2/32", resolver=rebinding)
        assert (good.status, good.error) == (204, None)
        assert meant.received[0].headers["host"] == f"hooks.example:{meant.port}"
        # The name points to the victim now: refused, also when only one of its addresses is bad.
        for _ in range(2):
            bad = await try_to_post(url, "127.0.0.2/32", resolver=rebinding)
            assert "no public address" in str(bad.error)
            assert "127.0.0.1" not in str(bad.error)
        assert len(meant.received) == 1
        assert victim.received == []


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of hooks.example and its key, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with: apt-get install openssl")
    made = tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    command += " -subj /CN=hooks.example -addext subjectAltName=DNS:hooks.example"
    parts = [*command.split(), "-keyout", str(made), "-out", str(tmp_path / "public.pem")]
    subprocess.run(parts, check=True, capture_output=True)
    made.write_text(made.read_text() + (tmp_path / "public.pem").read_text())
    return made


async def test_the_certificate_must_be_the_names_although_an_address_is_dialled(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    addresses._ssl_context.cache_clear()
    try:
        with receiving(tls=tls) as receiver:

            async def here(host: str, port: int) -> list[str]:
                return ["127.0.0.1"]

            options = {"resolver": here}
            address = f"{receiver.port}/hook"
            good = await try_to_post(f"https://hooks.example:{address}", "127.0.0.1/32", **options)
            assert (good.status, good.error) == (204, None)
            bad = await try_to_post(f"https://other.example:{address}", "127.0.0.1/32", **options)
            assert "certificate" in str(bad.error)
            assert len(receiver.received) == 1
    finally:
        addresses._ssl_context.cache_clear()


async def test_a_redirect_to_a_private_place_is_not_followed(receiver: Receiver) -> None:
    with receiving("127.0.0.2") as trap:
        receiver.behave = lambda *_: answer(307, Location=trap.url)
        got = await try_to_post(receiver.url, "127.0.0.1/32")
        assert "redirect" in str(got.error)
        assert trap.received == []


async def test_answers_and_their_wishes_are_understood(receiver: Receiver) -> None:
    date = "Wed, 21 Oct 2099 07:28:00 GMT"
    for value, least in (("7", 7.0), (date, 1e6), ("soon", None), ("-3", None)):
        receiver.behave = lambda *_, value=value: answer(503, Retry_After=value)
        got = await try_to_post(receiver.url, "127.0.0.1/32")
        assert got.status == 503
        if least is None:
            assert got.retry_after is None
        else:
            assert got.retry_after is not None
            assert got.retry_after >= least
    got = await try_to_post("http://nowhere.invalid/hook")
    assert got.error is not None
    assert "no public address" in got.error


def test_pauses_grow_to_an_hour_and_heed_the_endpoint() -> None:
    dice = random.Random(1)
    pauses = [pause_after(n, AttemptResult(500, "x"), 5.0, dice) for n in range(12)]
    for n, pause in enumerate(pauses):
        assert 0.8 * min(5 * 3**n, 3600) <= pause <= 1.2 * min(5 * 3**n, 3600)
    assert pause_after(0, AttemptResult(503, "x", 120.0), 5.0, dice) == 120.0
    assert pause_after(0, AttemptResult(503, "x", 1e9), 5.0, dice) == 3600.0


def test_settings_name_endpoints_without_doubt(tmp_path: Path) -> None:
    environ = {"HASAT_HOME": str(tmp_path)}
    for endpoints, sentence in (
        ('[{"name": "http", "url": "https://a.example"}]', "two endpoints are called http"),
        ('[{"name": "x", "url": "ftp://a.example"}]', "is not an http or https address"),
    ):
        with pytest.raises(SettingsError, match=sentence):
            load_settings(environ={**environ, "HASAT_WEBHOOKS_ENDPOINTS": endpoints})
    with pytest.raises(SettingsError, match="is no network"):
        load_settings(environ={**environ, "HASAT_WEBHOOKS_PRIVATE_NETWORKS": "here"})
    slack = {
        "Webhooks__Enabled": "1",
        "Webhooks__Slack__Enabled": "1",
        "Webhooks__Slack__WebhookUrl": "hooks.slack.com/services/T0/B0/x",
    }
    with pytest.raises(SettingsError, match="'slack' is not an http") as caught:
        endpoints_of(load_settings(environ={**environ, **slack}))
    assert "T0" not in str(caught.value)
