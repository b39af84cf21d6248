"""Processes that are started by another one do not outlive it."""

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """End this process when its parent ends, even if that is killed."""
    threading.Thread(target=_wait, name="end with parent", daemon=True).start()


def _wait() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
