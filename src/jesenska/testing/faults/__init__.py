"""Faults for the processes and the network of any Kafka cluster, and checkers of its guarantees.

    python -m jesenska.testing.faults check HISTORY.jsonl...    findings, one a line; exit code 1 if there are any

`history` records the clients' operations, as JSON lines that any program can write; `checkers` find violations in it;
`proxy`, between clients and brokers, delays, holds, cuts; `processes` kills, pauses, restarts; `disks` makes them
full; `rounds` draws faults from a seed and applies them while a load runs; `load` is such a load."""

from jesenska.testing.faults.checkers import CHECKERS, Finding, check
from jesenska.testing.faults.disks import NoSmallDiskError, SmallDisk, limit_file_size, limited_file_size
from jesenska.testing.faults.history import ClientHistory, HistoryError, HistoryWriter, read_history
from jesenska.testing.faults.load import LoadFailedError, RecordedLoad, read_everything
from jesenska.testing.faults.processes import ServerFaults
from jesenska.testing.faults.proxy import FaultProxy, Way
from jesenska.testing.faults.rounds import (
    Fault,
    Round,
    Schedule,
    ScheduleError,
    StandsStillError,
    Target,
    apply,
    draw,
)

__all__ = [
    "CHECKERS",
    "ClientHistory",
    "Fault",
    "FaultProxy",
    "Finding",
    "HistoryError",
    "HistoryWriter",
    "LoadFailedError",
    "NoSmallDiskError",
    "RecordedLoad",
    "Round",
    "Schedule",
    "ScheduleError",
    "ServerFaults",
    "SmallDisk",
    "StandsStillError",
    "Target",
    "Way",
    "apply",
    "check",
    "draw",
    "limit_file_size",
    "limited_file_size",
    "read_everything",
    "read_history",
]
