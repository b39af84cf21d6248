"""Parse in one thread at a time, as Python before 3.13 requires.

`ast.parse` counts its depth in a variable that all threads share. If the garbage collector runs
Python code while the tree is built (a callback in `gc.callbacks`, which Hypothesis and the metrics
register), another thread can parse in the middle, and one of the two fails with "SystemError: AST
constructor recursion depth mismatch". Hypothesis parses the source of tests, and the formatting of
a traceback parses lines, so a test whose server runs in a thread failed by chance.
"""

import ast
import gc
import sys
import threading
from typing import Any


def parse_in_one_thread() -> None:
    if sys.version_info >= (3, 13):
        return
    parse = ast.parse
    lock = threading.RLock()

    def parse_alone(*args: Any, **kwargs: Any) -> ast.AST:
        with lock:
            collects = gc.isenabled()
            gc.disable()
            try:
                return parse(*args, **kwargs)
            finally:
                if collects:
                    gc.enable()

    ast.parse = parse_alone
