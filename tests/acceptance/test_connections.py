"""Every server responds while hundreds of connections are silent and files are scarce."""

import socket
from contextlib import ExitStack

import httpx2
import pytest

from support.processes import Installation, eventually, free_port

SILENT = 300
MAX_LOG_BYTES = 20_000


@pytest.mark.parametrize(
    ("command", "path", "status", "files"),
    [
        (("serve",), "/healthz", 200, 128),
        (("serve",), "/healthz", 200, 40),
        (("mcp",), "/", 404, 128),
        (("tkgm", "endpoint"), "/", 401, 128),
    ],
)
def test_silent_connections_do_not_block_others(
    hosted: Installation, command: tuple[str, ...], path: str, status: int, files: int
) -> None:
    port = free_port()
    hosted.environ |= {
        "HASAT_PORT": str(port),
        "MCP_TRANSPORT": "streamable-http",
        "HASAT_MCP_PORT": str(port),
        "HASAT_TKGM_ENDPOINT_PORT": str(port),
        "HASAT_TKGM_ENDPOINT_API_KEY": "a key",
        "HASAT_TKGM_REGISTRY_URL": "http://127.0.0.1:9",
    }
    hosted.start(*command, files=files)

    def responds() -> bool:
        try:
            response = httpx2.get(f"http://127.0.0.1:{port}{path}", timeout=10)
        except httpx2.HTTPError:
            return False
        return response.status_code == status

    eventually(responds, "the server responds")
    before = len(hosted.output())
    with ExitStack() as silent:
        for _ in range(SILENT):
            silent.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        assert all(responds() for _ in range(10))
    assert len(hosted.output()) - before < MAX_LOG_BYTES
