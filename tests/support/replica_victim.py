"""Replicas of toys that are killed -9 at their N-th statement, wherever that is.

A program: for each line ``[address, target, N]`` it forks one, and answers with its exit code.
"""

import asyncio
import json
import os
import signal
import sys
from typing import Any

from hasat.replica import Replica
from hasat.replica.postgres import PostgresTarget
from hasat.replica.sqlite import SqliteTarget


def die_at(statement_number: int) -> None:
    """Let this process be killed right before one of the statements it sends to its target."""
    left = statement_number

    def deadly(original: Any) -> Any:
        def send(*arguments: Any, **values: Any) -> Any:
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **values)

        return send

    for kind in (SqliteTarget, PostgresTarget):
        for name in ("_execute", "_rows", "put", "_exists"):
            setattr(kind, name, deadly(getattr(kind, name)))


async def follow(address: str, target: str, statement_number: int) -> None:
    die_at(statement_number)
    async with Replica("toys", address, target) as replica:
        await replica.catch_up()


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            asyncio.run(follow(*json.loads(line)))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
