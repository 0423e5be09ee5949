"""Modules are left out of the garbage collection of Spark's Python workers.

A worker lives from task to task, and PySpark has it collect garbage after each (pyspark/daemon.py). That looks at
every object that there is. The modules that are loaded are nearly all of them, and take longer than a small task does.
They stay as long as the worker, so they can be left out: `gc.freeze`. Objects that a task makes later are collected as
before.
"""

from __future__ import annotations

import gc
import os

#: The process that has had its first task, and True if its modules are left out already.
_seen: dict[int, bool] = {}


def leave_modules_out() -> None:
    """Called at the beginning of each task. From the second one on the worker has its modules, and has just collected
    garbage."""
    process = os.getpid()
    if process not in _seen:  # also in a process that was forked from one that is there
        _seen.clear()
        _seen[process] = False
    elif not _seen[process]:
        _seen[process] = True
        gc.freeze()
