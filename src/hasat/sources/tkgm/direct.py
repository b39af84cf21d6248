"""The registry itself, for a machine that is permitted to ask it: one request at a time, paid for
from the day of the address that requests leave from."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hasat.budget import Budget, Remaining
from hasat.errors import BrokenAnswerError, SettingsError
from hasat.fetch import Asker, Client, Fetched, Fetcher, Outcome, Question, Rules
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources import upstreams
from hasat.sources.tkgm.outcomes import classify
from hasat.store import Store


class Direct:
    """The registry, asked without an endpoint between."""

    def __init__(self, fetcher: Fetcher, seconds: float) -> None:
        self._fetcher = fetcher
        self._seconds = seconds
        self._turn = asyncio.Lock()

    async def ask(self, path: str, job: str, *, patience: float = 60.0) -> Fetched:
        """Its answer, if it says what was asked for or that there is no such thing."""
        async with self._turn:
            fetched = await self._fetcher.ask(
                Question(path, self._seconds), Asker("daily", job), patience=patience
            )
        if fetched.verdict.outcome not in (Outcome.OK, Outcome.EMPTY):
            raise BrokenAnswerError(
                msg(
                    "The registry's answer to {path} could not be used: {reason}.",
                    path=path,
                    reason=fetched.verdict.reason,
                ),
                remedy=msg("Check tkgm.registry.url."),
            )
        return fetched


@asynccontextmanager
async def direct(store: Store, settings: Settings) -> AsyncIterator[Direct]:
    """The registry that the settings name."""
    url = settings.tkgm.registry.url
    if url is None:
        raise SettingsError(
            msg("The address of the registry is not set, so it cannot be asked directly."),
            remedy=msg(
                "If you are permitted to ask it, set tkgm.registry.url, for example to "
                "https://cbsapi.tkgm.gov.tr/megsiswebapi.v3/api."
            ),
        )
    upstream = upstreams.tkgm_registry(settings)
    async with (
        Budget(store, upstream) as budget,
        Client(Rules(settings.tkgm.user_agent)) as client,
    ):
        fetcher = Fetcher(
            store, budget, client, upstream.name, url, classify, lambda headers: Remaining()
        )
        yield Direct(fetcher, settings.tkgm.single_timeout.total_seconds())
