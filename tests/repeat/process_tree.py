"""The processes below one, those in sessions of their own too."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def below(process: int) -> dict[int, str]:
    """Every process that this one has started, and those that these have: when it was started, by its id. None where
    there is no /proc."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name in brackets may have spaces and brackets in it.
            fields = entry.read_text().rpartition(")")[2].split()
            parents[int(entry.parent.name)] = (int(fields[1]), fields[19])
    found: dict[int, str] = {}
    parent_ids = {process}
    while parent_ids:
        new = {
            child: started
            for child, (parent, started) in parents.items()
            if parent in parent_ids and child not in found
        }
        found |= new
        parent_ids = set(new)
    return found


def kill(processes: dict[int, str]) -> None:
    """Ends those that are still the ones that were seen."""
    for process, started in processes.items():
        with suppress(OSError):
            if (_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()[19] == started:
                os.kill(process, signal.SIGKILL)
