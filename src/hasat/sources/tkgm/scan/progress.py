"""A scan as its operator sees it: the request and its quality level, the forecast, the progress."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import shapely
from shapely import MultiPolygon, Polygon

from hasat.errors import UsageError
from hasat.feed.guard import Counts
from hasat.messages import Message, join, msg
from hasat.sources.tkgm.scan import Quality
from hasat.sources.tkgm.scan.audit import Completeness


@dataclass(frozen=True)
class QualityLevel:
    """The share of parcels that a scan may miss, and the radius of the smallest gap it considers.

    `spacing` is how far apart the gaps are, as a share of the side of a usual parcel. `audit` is
    the number of random points, as a share of the parcels found. `least`, `queries` and `most` are
    the queries per parcel that bench/scan.py measures.
    """

    missing: float
    smallest_gap: int
    spacing: float
    audit: float
    least: float
    queries: float
    most: float


QUALITY_LEVELS: dict[str, QualityLevel] = {
    "fast": QualityLevel(
        0.015, smallest_gap=3, spacing=0.5, audit=0.01, least=1.0, queries=1.4, most=2.5
    ),
    "standard": QualityLevel(
        0.0015, smallest_gap=2, spacing=0.5, audit=0.015, least=1.1, queries=1.7, most=3.5
    ),
    "thorough": QualityLevel(
        0.00015, smallest_gap=2, spacing=0.25, audit=0.04, least=1.3, queries=2.6, most=5.5
    ),
}


@dataclass(frozen=True)
class ScanRequest:
    """The area to scan, the method to find its parcels, and the limit on queries."""

    area: Polygon | MultiPolygon
    quality: Quality = "standard"
    method: Literal["coverage", "grid"] = "coverage"
    step: float = 20.0
    max_queries: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The method and its parameters, as they are stored."""
        if self.method == "grid":
            return {"method": "grid", "step": self.step}
        return {"method": "coverage", "quality": self.quality}

    @property
    def fingerprint(self) -> bytes:
        """A digest that is equal for equal areas with equal options."""
        area = shapely.to_wkb(shapely.normalize(shapely.set_precision(self.area, 1e-7)))
        return hashlib.sha256(area + json.dumps(self.options).encode()).digest()


def check_budget(request: ScanRequest, queries: int, day_budget: int) -> None:
    """Raise UsageError for a scan that takes more than a day's budget without confirmation."""
    most = request.max_queries
    if queries > day_budget and (most is None or most > day_budget):
        raise UsageError(
            msg(
                "The scan takes about {queries:,} queries, more than the {limit:,} of a day.",
                queries=queries,
                limit=day_budget,
            ),
            remedy=msg(
                "Confirm with yes (--yes), or scan less: a smaller area, the quality fast or "
                "fewer max_queries. The responses so far are stored."
            ),
        )


@dataclass(frozen=True)
class Forecast:
    """Expected parcels and queries of a scan, with 95 % intervals, from a small random sample."""

    parcels: float
    low: float
    high: float
    questions: int
    least_questions: int
    most_questions: int


@dataclass(frozen=True)
class Estimate:
    """Parcels found and expected (with a 95 % interval), the share of the area that is known, and
    roughly how many queries are left."""

    found: int
    expected: float
    low: float
    high: float
    coverage: float
    questions_left: int


@dataclass(frozen=True)
class ScanProgress:
    """The progress of a scan.

    `checks` are queries about parcels and points known before; `unanswered` are queries without a
    response, which the scan skips; `quarantined` are responses that cannot be read.
    """

    scan: int
    found: int
    queries: int
    known_before: int
    checks: int
    changes: Counts
    estimate: Estimate | None
    complete: bool
    claim: Completeness | None = None
    forecast: Forecast | None = None
    unanswered: int = 0
    per_second: float | None = None
    quota_left: int | None = None
    quarantined: int = 0

    @property
    def total_queries(self) -> float | None:
        """Queries sent and left: all parcels may be found long before the whole area is known."""
        return None if self.estimate is None else self.queries + self.estimate.questions_left

    @property
    def seconds_left(self) -> float | None:
        """The time left at the present rate, if the quota suffices."""
        if self.estimate is None or not self.per_second:
            return None
        return self.estimate.questions_left / self.per_second

    @property
    def completeness(self) -> dict[str, Any] | None:
        """The share of the area's parcels that was found, with bounds; None if nothing was found.

        At the end of a scan, the bounds hold for parcels of `smallestSquareMetres` and more.
        """
        estimate, found, claim = self.estimate, self.found, self.claim
        if estimate is None or not found:
            return None
        if claim is None:
            return {
                "share": _share(found, estimate.expected),
                "low": _share(found, estimate.high),
                "high": _share(found, estimate.low),
                "confidence": 0.95,
            }
        return {
            # Rounded down: a claim must not grow by its rounding.
            "share": _down(claim.share),
            "low": _down(claim.low),
            "high": claim.high,
            "confidence": claim.confidence,
            "smallestSquareMetres": claim.smallest,
            "audit": {
                "points": claim.points,
                "hits": claim.hits,
                "unknownSquareMetres": round(claim.unknown_square_metres),
                "low": _down(claim.audited),
            },
            "numbers": {
                "missing": claim.missing_numbers,
                "blocks": claim.blocks,
                "low": _down(claim.numbered),
            },
        }

    @property
    def first_estimate(self) -> Literal["held", "too low", "too high"] | None:
        """Whether the forecast of the parcels held so far; None without one."""
        if self.forecast is None or self.estimate is None:
            return None
        if self.estimate.low > self.forecast.high:
            return "too low"
        return "too high" if self.estimate.high < self.forecast.low else "held"


def _share(found: int, of: float) -> float:
    return round(found / max(of, found), 5)


def _down(share: float | None) -> float | None:
    return None if share is None else math.floor(share * 1e5) / 1e5


def progress_document(progress: ScanProgress) -> dict[str, Any]:
    """Return the progress as JSON for the command and the run."""
    estimate = progress.estimate
    return {
        "scan": progress.scan,
        "complete": progress.complete,
        "parcels": progress.found,
        "questions": progress.queries,
        "knownBefore": progress.known_before,
        "checks": progress.checks,
        "unanswered": progress.unanswered,
        "quarantined": progress.quarantined,
        "changes": {
            "added": progress.changes.added,
            "modified": progress.changes.modified,
            "removed": progress.changes.removed,
        },
        "quotaLeft": progress.quota_left,
        "estimate": None if estimate is None else asdict(estimate),
        "completeness": progress.completeness,
        "forecast": None if progress.forecast is None else asdict(progress.forecast),
        "firstEstimate": progress.first_estimate,
    }


def progress_note(progress: ScanProgress) -> Message:
    """Return the progress in one line."""
    parts = [
        msg("{count:,} parcels", count=progress.found),
        msg("{count:,} queries", count=progress.queries),
    ]
    if progress.estimate is not None:
        parts.append(msg("{share:.0%} of the area known", share=progress.estimate.coverage))
    if progress.complete and progress.claim is not None:
        parts.append(
            msg(
                "at least {low:.1%} of the parcels found",
                low=math.floor(progress.claim.low * 1000) / 1000,
            )
        )
    if progress.unanswered:
        parts.append(msg("{count:,} queries without response", count=progress.unanswered))
    if progress.quarantined:
        parts.append(msg("{count:,} responses quarantined", count=progress.quarantined))
    if progress.per_second is not None:
        parts.append(msg("{count:,.1f}/s", count=progress.per_second))
    if progress.quota_left is not None:
        parts.append(msg("quota left {count:,}", count=progress.quota_left))
    if progress.seconds_left is not None:
        parts.append(msg("about {duration} to go", duration=_duration(progress.seconds_left)))
    note = join(parts, ", ")
    state, forecast = progress.first_estimate, progress.forecast
    if forecast is None or state not in ("too low", "too high"):
        return note
    return join([note, first_estimate_text(asdict(forecast), state)], ". ")


def forecast_text(forecast: Forecast, quota_left: int | None) -> Message:
    """Return the forecast in one or two sentences."""
    text = msg(
        "About {parcels:,.0f} parcels ({low:,.0f} to {high:,.0f}), about {queries:,} queries "
        "({least:,} to {most:,}), with 95 % confidence.",
        parcels=forecast.parcels,
        low=forecast.low,
        high=forecast.high,
        queries=forecast.questions,
        least=forecast.least_questions,
        most=forecast.most_questions,
    )
    if quota_left is None:
        return text
    if quota_left >= forecast.most_questions:
        quota = msg("Today's quota leaves {count:,}: enough.", count=quota_left)
    elif quota_left >= forecast.least_questions:
        quota = msg("Today's quota leaves {count:,}: perhaps not enough.", count=quota_left)
    else:
        quota = msg("Today's quota leaves {count:,}: not enough.", count=quota_left)
    return join((text, quota))


def sample_text(forecast: Forecast | None, quota_left: int | None) -> Message:
    """Return what a sample forecasts."""
    if forecast is None:
        return msg("No estimate: the area is too small for a sample, or it is already known.")
    return forecast_text(forecast, quota_left)


def claim_texts(completeness: Mapping[str, Any]) -> list[Message]:
    """Return what a complete scan claims to have found, and what supports it."""
    audit, numbers = completeness["audit"], completeness["numbers"]
    texts = [
        msg(
            "At least {low:.2%} of the parcels of {smallest:.0f} m² and more were found (with "
            "{confidence:.0%} confidence), about {share:.2%}.",
            low=completeness["low"],
            smallest=completeness["smallestSquareMetres"],
            confidence=completeness["confidence"],
            share=completeness["share"],
        ),
        msg(
            "Audit: {points:,} random points in the {unknown:,} m² that are still unknown found "
            "{hits:,} parcels.",
            points=audit["points"],
            unknown=audit["unknownSquareMetres"],
            hits=audit["hits"],
        ),
    ]
    if numbers["missing"]:
        texts.append(
            msg(
                "{missing:,} numbers are missing in {blocks:,} blocks: parcels not found, or "
                "divided or merged since. The layer of unknown areas shows them.",
                missing=numbers["missing"],
                blocks=numbers["blocks"],
            )
        )
    return texts


def first_estimate_text(forecast: Mapping[str, Any], state: str) -> Message:
    """Return that the forecast was off, and what it was."""
    bounds = {"low": forecast["low"], "high": forecast["high"]}
    if state == "too low":
        return msg("The first estimate of {low:,.0f} to {high:,.0f} parcels was too low.", **bounds)
    return msg("The first estimate of {low:,.0f} to {high:,.0f} parcels was too high.", **bounds)


def _duration(seconds: float) -> Message:
    if seconds < 90:
        return msg("{count:.0f} s", count=seconds)
    if seconds < 5400:
        return msg("{count:.0f} min", count=seconds / 60)
    return msg("{count:.1f} h", count=seconds / 3600)
