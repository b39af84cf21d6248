"""Recorded responses: those of the simulators in the repository, and real ones if available."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
SHARED = TESTS.parents[1] / "shared" / "samples"
REASON = "the responses recorded from the upstream are not in the repository"


def sample_folders(source: str) -> list[Path]:
    """Return the folders with samples of a source: simulated ones, then real ones."""
    folders = [TESTS / "recorded" / "data" / source, SHARED / source]
    return [folder for folder in folders if folder.is_dir()]


def football_samples() -> list[Path]:
    """Return all recorded responses of API-Football."""
    return [
        path
        for folder in sample_folders("football")
        for path in sorted(folder.glob("*/*.json"))
        if not path.name.startswith("_")
    ]


def sample_id(path: Path) -> str:
    """Return the name of a sample in the output of pytest."""
    return f"{path.parent.name}-{path.name[:40]}"
