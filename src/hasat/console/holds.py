"""Runs and previews of holds as commands print them."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from hasat.console import output
from hasat.console.tables import local_time, outcome
from hasat.feed.holds import Hold
from hasat.jobs import Run
from hasat.messages import join, msg
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
    lines = run_lines(result)
    datasets = result["datasets"]
    if isinstance(datasets, Mapping):
        lines += [
            msg(
                "  {dataset}: {added:,} added, {modified:,} modified, {removed:,} removed",
                dataset=name,
                **{kind: one[kind] for kind in ("added", "modified", "removed")},
            )
            for name, one in datasets.items()
        ]
    return output.text(lines)


def run_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the outcome and the message of a run as lines."""
    state = outcome(result["outcome"]).plain
    first = msg("Run {run}: {outcome}", run=result["run"], outcome=state)
    return [first, result["message"]] if result.get("message") else [first]


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
    text: str = outcome(hold.state).plain
    if hold.decided_by:
        text = msg("{decision} by {name}", decision=text, name=hold.decided_by)
    if hold.decided_at:
        at = local_time(hold.decided_at, settings)
        text = msg("{decision} at {time}", decision=text, time=at)
    return join([text, hold.reason], ": ") if hold.reason else text


def preview_lines(preview: Mapping[str, Any]) -> list[str]:
    """Return the changes that a held run would make, the measures and examples as lines."""
    lines: list[str] = [
        msg(
            "  {dataset} would have {added:,} added, {modified:,} modified, {removed:,} removed; "
            "{total:,} in total",
            dataset=name,
            **{count: one[count] for count in ("added", "modified", "removed", "total")},
        )
        for name, one in preview.get("datasets", {}).items()
    ]
    for measure in preview.get("measures", []):
        values = {name: measure[name] for name in ("subject", "what", "value", "limit")}
        values["what"] = output.localize(measure["what"])
        if measure["exceeded"]:
            text = msg("  OVER {subject}: {what} {value:.2f} % (limit {limit:g} %)", **values)
        else:
            text = msg("  ok   {subject}: {what} {value:.2f} % (limit {limit:g} %)", **values)
        lines.append(text)
    for name, kinds in preview.get("examples", {}).items():
        for kind, some in kinds.items():
            lines += [
                msg(
                    "  {kind} in {dataset}: {record}",
                    kind=outcome(kind).plain,
                    dataset=name,
                    record=f"{one['identifier']} {one.get('title') or ''}".rstrip(),
                )
                for one in some
            ]
    return lines
