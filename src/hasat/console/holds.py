"""Runs and previews of holds as commands print them."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from hasat.console.tables import local_time
from hasat.feed.holds import Hold
from hasat.jobs import Run
from hasat.settings import Settings

EXIT_CODES = {
    "queued": 0,
    "done": 0,
    "nothing": 0,
    "committed": 0,
    "unchanged": 0,
    "skipped": 3,
    "held": 4,
    "out_of_quota": 5,
    "interrupted": 130,
}


def run_json(run: Run) -> dict[str, Any]:
    """Return a run with its detail as the commands print it."""
    outcome = run.detail.get("outcome") or run.outcome or run.state
    result: dict[str, Any] = {"run": run.id, "outcome": outcome, "seconds": None, "datasets": {}}
    result |= dict(run.detail)
    result["outcome"] = outcome
    if run.message or run.error:
        result["message"] = run.message or run.error
    return result


def run_text(result: Mapping[str, Any]) -> Text:
    """Return the result of a run as text: its outcome, message and changes."""
    lines = [f"Run {result['run']}: {result['outcome']}"]
    if result.get("message"):
        lines.append(result["message"])
    datasets = result["datasets"]
    if isinstance(datasets, Mapping):
        lines += [
            f"  {name}: {one['added']:,} added, {one['modified']:,} modified, "
            f"{one['removed']:,} removed"
            for name, one in datasets.items()
        ]
    return Text("\n".join(lines))


def decision_json(hold: Hold) -> dict[str, Any]:
    """Return the state of a hold, and its decision if there is one, as the commands print it."""
    return {
        "decision": hold.state,
        "decidedAt": hold.decided_at,
        "decidedBy": hold.decided_by,
        "reason": hold.reason,
    }


def decision_text(hold: Hold, settings: Settings) -> str:
    """Return the decision about a hold: what, who, when and why."""
    by = f" by {hold.decided_by}" if hold.decided_by else ""
    at = f" at {local_time(hold.decided_at, settings)}" if hold.decided_at else ""
    why = f": {hold.reason}" if hold.reason else ""
    return f"{hold.state}{by}{at}{why}"


def preview_lines(preview: Mapping[str, Any]) -> list[str]:
    """Return the changes that a held run would make, the measures and examples as lines."""
    lines = [
        f"  {name} would have {one['added']:,} added, {one['modified']:,} modified, "
        f"{one['removed']:,} removed; {one['total']:,} in total"
        for name, one in preview.get("datasets", {}).items()
    ]
    for measure in preview.get("measures", []):
        mark = "OVER" if measure["exceeded"] else "ok  "
        lines.append(
            f"  {mark} {measure['subject']}: {measure['what']} {measure['value']:.2f} % "
            f"(limit {measure['limit']:g} %)"
        )
    for name, kinds in preview.get("examples", {}).items():
        for kind, some in kinds.items():
            lines += [
                f"  {kind} in {name}: {one['identifier']} {one.get('title') or ''}".rstrip()
                for one in some
            ]
    return lines
