"""The source in docs/reference/source.md works as it is shown."""

import re
from pathlib import Path

import pytest

from hasat.jobs import Catalogue, run_in_foreground
from hasat.settings import Settings
from hasat.source import Source
from hasat.store import open_store

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "source.md"


async def test_the_job_of_the_reference_runs(settings: Settings) -> None:
    [text] = re.findall(r"(?ms)^```python executed\n(.*?)^```$", PAGE.read_text("utf-8"))
    namespace: dict[str, object] = {}
    exec(text, namespace)  # noqa: S102 - it is a page of this repository
    source = namespace["SOURCE"]
    assert isinstance(source, Source)
    async with open_store(settings, [source.migration_set]) as store:
        catalogue = Catalogue.of(source.all_jobs, settings)
        outcomes = [
            (await run_in_foreground(catalogue, store, settings, "squares_compute")).outcome
            for _ in range(2)
        ]
    assert outcomes == ["done", "nothing"]
