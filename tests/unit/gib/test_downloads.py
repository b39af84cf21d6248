"""Sources that a list may be fetched from."""

from pathlib import Path

import pytest

from hasat.errors import UsageError
from hasat.fetch.downloads import Downloader
from hasat.sources.gib.sync.downloads import fetch_list
from support.endpoint_pool import CONTEXT, FakeBudget


@pytest.mark.anyio
@pytest.mark.parametrize("source", ["ftp://example.org/pk.zip", "s3://lists/pk.zip", "://"])
async def test_an_unsupported_scheme_is_rejected_at_once(source: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only http"):
        await fetch_list(
            Downloader(FakeBudget(), CONTEXT), source, "PK", tmp_path, timeout_seconds=5
        )
    assert not list(tmp_path.iterdir())
