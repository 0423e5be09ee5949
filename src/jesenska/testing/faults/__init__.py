"""Injects faults into the processes and the network of any Kafka cluster, and checks the guarantees of the cluster.

python -m jesenska.testing.faults check HISTORY.jsonl...    prints findings, one per line; the exit code is 1 if
                                                            there are findings

history     records the clients' operations, as JSON lines that any program can write
checkers    find violations of guarantees in a history
proxy       a TCP proxy between clients and brokers that delays, holds or cuts connections
processes   kills, pauses and restarts brokers
disks       fills disks
rounds      chooses faults at random from a seed, and applies them while a load runs
load        a load that records its operations in a history
"""

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
