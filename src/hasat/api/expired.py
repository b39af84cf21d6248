"""410 only where it leads somewhere: to an archive that exists."""

from fastapi import Request
from starlette.responses import Response

from hasat.api.problems import problem_response
from hasat.errors import HasatError, UnavailableError
from hasat.feed.archive import Storage
from hasat.feed.archive.catalog import latest_archive
from hasat.feed.changes import ExpiredError
from hasat.http.routes import exchange_of
from hasat.store import Store


async def on_expired_cursor(request: Request, error: Exception) -> Response:
    """Answer 410 with the archive to start over from, or 503 until there is one."""
    assert isinstance(error, ExpiredError)
    state = request.app.state
    answered = await check_restart_archive(error, state.store, state.archive_storage)
    return problem_response(answered, exchange_of(request.scope))


async def check_restart_archive(error: ExpiredError, store: Store, place: Storage) -> HasatError:
    """The error, or why a follower cannot start over from an archive yet."""
    if not error.starts_over:
        return error
    try:
        await latest_archive(store.primary, place, error.dataset, "ndjson")
    except UnavailableError as pending:
        return pending
    return error
