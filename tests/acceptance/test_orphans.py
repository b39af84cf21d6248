"""Processes that read lists end with the one that started them, also when that is killed."""

import subprocess
import sys
from pathlib import Path

from support.processes import eventually

STARTER = """
import asyncio, os, time
from hasat.sources.gib.sync.processes import worker_pool

async def main():
    async with worker_pool(10**9) as pool:
        print(*await asyncio.gather(*(pool.run(_number) for _ in range(2))), flush=True)
        await asyncio.sleep(600)

def _number():
    time.sleep(1)
    return os.getpid()

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_readers_of_a_killed_process_end(tmp_path: Path) -> None:
    script = tmp_path / "starter.py"
    script.write_text(STARTER, "utf-8")
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        readers = starter.stdout.readline().split()
        assert readers
        starter.kill()
    there = [Path("/proc", reader) for reader in readers]
    eventually(lambda: not any(one.exists() for one in there), "the readers to end")
