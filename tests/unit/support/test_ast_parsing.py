"""Tests whose server runs in a thread can parse Python while the garbage collector works."""

import ast
import gc
import sys
import threading
from collections.abc import Iterator

import pytest

SOURCE = "\n".join(f"x{n} = f(a, b[{n}], c.d.e) if y else (lambda q: q + 1)" for n in range(100))


def _run_python(phase: str, info: dict[str, int]) -> None:
    for _ in range(50):
        pass


@pytest.fixture
def busy_collector() -> Iterator[None]:
    """A collector that runs often, calls Python and lets other threads in."""
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.callbacks.append(_run_python)
    gc.set_threshold(50, 5, 5)
    sys.setswitchinterval(1e-6)
    yield
    gc.callbacks.remove(_run_python)
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("busy_collector")
def test_two_threads_parse_at_different_depths() -> None:
    parsed, errors = [], []

    def parse(depth: int) -> None:
        if depth:
            return parse(depth - 1)
        for _ in range(150):
            try:
                parsed.append(len(ast.parse(SOURCE).body))
            except SystemError as error:
                errors.append(error)
        return None

    threads = [threading.Thread(target=parse, args=(depth,)) for depth in (0, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert parsed == [100] * 300
