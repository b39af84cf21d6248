"""The classification of real responses: every wording that was seen."""

import json
from typing import Any

import pytest

from hasat.budget import Remaining
from hasat.fetch import Outcome, Response
from hasat.sources.football import outcomes as football
from hasat.sources.tkgm.registry import wire as tkgm


def answer(status: int, content: Any = None, **headers: str) -> Response:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, named, b"" if content is None else body, 0.1)


FEATURE = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": []}, "properties": {}}
NOT_FOUND = "Parsel Bulunamadı: Enlem = 41,0369 - Boylam=28,9855"
PASSIVE = {"type": "Feature", "geometry": None, "properties": {"gittigiParselListe": "{}"}}


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (answer(200, FEATURE), Outcome.OK),
        (answer(200, {"type": "FeatureCollection", "features": []}), Outcome.OK),
        (answer(200, {"results": [], "stats": {}}), Outcome.OK),
        (answer(404, PASSIVE), Outcome.OK),
        (answer(404, {"Message": NOT_FOUND}), Outcome.EMPTY),
        (answer(200, {"Message": NOT_FOUND}), Outcome.EMPTY),
        (answer(404, f"<string>{NOT_FOUND}</string>".encode()), Outcome.EMPTY),
        (answer(404, {"error": "PARSEL BULUNAMADI"}), Outcome.EMPTY),
        (answer(404), Outcome.EMPTY),
        (answer(404, {}), Outcome.EMPTY),
        (answer(204), Outcome.EMPTY),
        (answer(404, {"Message": "No HTTP resource was found."}), Outcome.BAD_REQUEST),
        (answer(404, b"<html>404 Not Found</html>"), Outcome.BROKEN),
        (answer(403, {"Message": "Günlük sorgu limitini aştınız."}), Outcome.DAY_EXHAUSTED),
        (answer(403, "<string>Günlük limit aşıldı</string>".encode()), Outcome.DAY_EXHAUSTED),
        (answer(403, {"error": "GÜNLÜK SORGU LİMİTİNİ AŞTINIZ"}), Outcome.DAY_EXHAUSTED),
        (answer(200, {"Message": "Günlük sorgu limitini aştınız."}), Outcome.DAY_EXHAUSTED),
        (answer(429, {"error": "daily limit reached"}), Outcome.DAY_EXHAUSTED),
        (answer(403), Outcome.MINUTE_LIMITED),
        (answer(403, b"<html>Access denied</html>"), Outcome.MINUTE_LIMITED),
        (answer(429), Outcome.MINUTE_LIMITED),
        (answer(401, {"error": "Unauthorized"}), Outcome.UNAUTHORISED),
        (answer(500, {"Message": "An error has occurred."}), Outcome.TRANSIENT),
        (answer(502, b"<html>bad gateway</html>"), Outcome.TRANSIENT),
        (answer(503), Outcome.TRANSIENT),
        (answer(400, {"error": "max 20"}), Outcome.BAD_REQUEST),
        (answer(302), Outcome.BROKEN),
        (answer(200, b"<html>maintenance</html>"), Outcome.BROKEN),
        (answer(200, b'{"type": "Feature", "geom'), Outcome.BROKEN),
        (answer(200, b"[" * 100_000), Outcome.BROKEN),
        (answer(200, {"Message": "Beklenmeyen hata"}), Outcome.BROKEN),
    ],
)
def test_parcels(given: Response, outcome: Outcome) -> None:
    assert tkgm.classify(given).outcome is outcome


def test_parcels_retry_after() -> None:
    assert tkgm.classify(answer(429, retry_after="17")).retry_after == 17.0
    assert tkgm.classify(answer(503, retry_after="5")).retry_after == 5.0


def envelope(errors: Any, response: Any = ()) -> dict[str, Any]:
    rows = list(response) if isinstance(response, tuple) else response
    return {"get": "x", "parameters": [], "errors": errors, "results": 0, "response": rows}


MINUTE = "Too many requests. Your rate limit is 450 requests per minute."
MINUTE_OF_PLAN = (
    "Too many requests. You have reached your per-minute request limit. Please wait a few seconds "
    "before retrying or upgrade your plan for higher limits."
)
MINUTE_OF_SUBSCRIPTION = (
    "Too many requests. You have exceeded the limit of requests per minute of your subscription."
)
DAY = (
    "You have reached the request limit for the day, Go to https://dashboard.api-football.com to "
    "upgrade your plan."
)
DAY_429 = (
    "Too many requests. You have reached your daily request limit. Please try again later or "
    "upgrade your plan."
)
NO_KEY = (
    "Error/Missing application key. Go to https://www.api-football.com/documentation-v3 to learn "
    "how to get your API application key."
)
IP = "This IP is not allowed to call the API, check the list of allowed IPs in the dashboard."
SUSPENDED = "Your account is suspended, check on https://dashboard.api-football.com."
DOMAIN = IP.replace("IP", "Domain")


@pytest.mark.parametrize(
    ("status", "errors", "outcome"),
    [
        (200, {"rateLimit": MINUTE}, Outcome.MINUTE_LIMITED),
        (200, {"rateLimit": MINUTE_OF_SUBSCRIPTION}, Outcome.MINUTE_LIMITED),
        (429, {"rateLimit": MINUTE_OF_PLAN}, Outcome.MINUTE_LIMITED),
        (200, {"rateLimit": MINUTE_OF_PLAN}, Outcome.MINUTE_LIMITED),
        (429, [], Outcome.MINUTE_LIMITED),
        (200, {"requests": DAY}, Outcome.DAY_EXHAUSTED),
        (429, {"rateLimit": DAY_429}, Outcome.DAY_EXHAUSTED),
        (403, {"rateLimit": DAY_429}, Outcome.DAY_EXHAUSTED),
        (200, {"token": NO_KEY}, Outcome.UNAUTHORISED),
        (403, {"message": "You are not subscribed to this API."}, Outcome.UNAUTHORISED),
        (401, [], Outcome.UNAUTHORISED),
        (200, {"ip": IP}, Outcome.UNAUTHORISED),
        (200, [DOMAIN], Outcome.UNAUTHORISED),
        (200, IP, Outcome.UNAUTHORISED),
        (200, {"access": SUSPENDED}, Outcome.UNAUTHORISED),
        (
            200,
            {"plan": "Free plans do not have access to this season, try from 2022 to 2024."},
            Outcome.NOT_IN_PLAN,
        ),
        (
            200,
            {"plan": "Free plans do not have access to this date, try from 2026-09-08"},
            Outcome.NOT_IN_PLAN,
        ),
        (
            200,
            {"plan": "Free plans do not have access to the Next parameter"},
            Outcome.NOT_IN_PLAN,
        ),
        (200, {"page": "The Page field do not exist."}, Outcome.BAD_REQUEST),
        (200, {"required": "At least one parameter is required."}, Outcome.BAD_REQUEST),
        (
            200,
            {"league": "The League field cannot be used with the Search field."},
            Outcome.BAD_REQUEST,
        ),
        (
            200,
            {"search": "The Search field must be at least 3 characters in length."},
            Outcome.BAD_REQUEST,
        ),
        (
            200,
            {"date": "The Date field must contain a valid date, such as a day of the year."},
            Outcome.BAD_REQUEST,
        ),
        (200, {"bug": "This is on our side, please report us this bug."}, Outcome.TRANSIENT),
        (500, [], Outcome.TRANSIENT),
        (499, [], Outcome.TRANSIENT),
        (204, [], Outcome.EMPTY),
        (200, [], Outcome.EMPTY),
        (200, {}, Outcome.EMPTY),
    ],
)
def test_football_errors(status: int, errors: Any, outcome: Outcome) -> None:
    assert football.classify(answer(status, envelope(errors))).outcome is outcome


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (answer(200, envelope([], ({"id": 1},))), Outcome.OK),
        (answer(200, envelope({}, {"league": {}})), Outcome.OK),
        (answer(200, b"<html>502</html>"), Outcome.BROKEN),
        (answer(200, b'{"get": "x", "resp'), Outcome.BROKEN),
        # What cannot be loaded is no answer, or its question would count as answered.
        (answer(200, {"response": [{"id": 1}]}), Outcome.BROKEN),
        (answer(200, {"errors": 5, "response": [{"id": 1}]}), Outcome.BROKEN),
        # One bad value does not cost the rest of an answer.
        (answer(200, b'{"errors": [], "response": [NaN]}'), Outcome.OK),
        (answer(200, b'{"errors": [], "response": [1e999]}'), Outcome.OK),
        (answer(200, {"message": "limit for the day"}), Outcome.DAY_EXHAUSTED),
        (answer(502, b"<html>502</html>"), Outcome.TRANSIENT),
        (answer(301), Outcome.BROKEN),
        (answer(429), Outcome.MINUTE_LIMITED),
    ],
)
def test_football_responses(given: Response, outcome: Outcome) -> None:
    assert football.classify(given).outcome is outcome


def test_stale_headers_do_not_hide_an_exhausted_day() -> None:
    stale = {"x_ratelimit_requests_remaining": "7499"}
    assert football.classify(answer(200, envelope({"requests": DAY}), **stale)).outcome is (
        Outcome.DAY_EXHAUSTED
    )


def test_football_headers() -> None:
    given = {
        "x-ratelimit-requests-limit": "75000",
        "x-ratelimit-requests-remaining": "74999",
        "x-ratelimit-limit": "450, 450",
        "x-ratelimit-remaining": "449",
    }
    assert football.remaining(given) == Remaining(74_999, 449, 75_000, 450)
    assert football.remaining({}) == Remaining()
    assert football.remaining({"x-ratelimit-remaining": "-1"}) == Remaining()
