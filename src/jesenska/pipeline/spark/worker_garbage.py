"""Excludes loaded modules from the garbage collection of Spark's Python workers.

A worker process runs many tasks, and PySpark collects garbage after each task (pyspark/daemon.py). The collector
visits every object. Nearly all objects belong to loaded modules, and visiting them takes longer than a small task.
Modules stay as long as the worker, so they can be excluded with `gc.freeze`. Objects that a task makes later are
collected as usual."""

from __future__ import annotations

import gc
import os

#: The id of this process, from its first task on. The value becomes True when the modules of the process are excluded.
_seen: dict[int, bool] = {}


def leave_modules_out() -> None:
    """Excludes the loaded modules from garbage collection. Each task calls this function at its beginning; only the
    call of a worker's second task excludes them. By then the worker has loaded its modules, and garbage has just been
    collected."""
    process = os.getpid()
    if process not in _seen:  # also in a process that was forked from one that is there
        _seen.clear()
        _seen[process] = False
    elif not _seen[process]:
        _seen[process] = True
        gc.freeze()
