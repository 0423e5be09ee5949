"""Checks invariants of transactions in the logs of leaders. The log files are read, and compared with the leaders'
state.

stable           the last stable offset is not above the first record of a transaction without a marker, and not above
                 the high watermark
goes on          the last stable offset does not go back while a broker leads in one leader epoch
fenced           no record of a producer comes after a record or a marker with a newer producer epoch"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jesenska.base.identifiers import TopicPartition
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.records.batch import iter_headers
from jesenska.records.header import BatchHeader
from jesenska.testing.simulation.clients import BrokerProgram
from jesenska.testing.simulation.machine.host import BrokerHost
from jesenska.testing.simulation.watches.history import ViolationError


class ScannedLog:
    """The contents of a log's files, as far as they were read. Each call of `read_on` continues where the last call
    ended."""

    __slots__ = ("_epochs", "end", "log", "open")

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        #: The offset up to which the log was read.
        self.end = 0
        #: The offset of the first record of each transaction without a marker, by producer id.
        self.open: dict[int, int] = {}
        self._epochs: dict[int, int] = {}

    def read_on(self) -> None:
        """Reads the new records of the log. Raises ViolationError if an invariant is violated."""
        end = self.log.log_end_offset
        if self.end >= end:
            return
        segments = self.log.segments
        for number, segment in enumerate(segments):
            if number + 1 < len(segments) and segments[number + 1].base_offset <= self.end:
                continue
            if not segment.size_bytes:
                continue  # its file may not be there yet
            data = segment.file.path.read_bytes()[: segment.size_bytes]
            for _, header in iter_headers(data):
                if self.end <= header.base_offset < end:
                    self._take(header)
                    self.end = header.next_offset

    def _take(self, header: BatchHeader) -> None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        if producer_id < 0:
            return
        known = self._epochs.get(producer_id, -1)
        if epoch < known:
            raise ViolationError(
                f"producer {producer_id} has written at offset {header.base_offset} of {self.log.topic_partition} in "
                f"epoch {epoch}, after epoch {known}"
            )
        self._epochs[producer_id] = epoch
        if header.is_control:
            self.open.pop(producer_id, None)
        elif header.is_transactional:
            self.open.setdefault(producer_id, header.base_offset)


class TransactionWatch:
    """Checks the partitions of some topics in one simulation."""

    def __init__(self, hosts: Sequence[BrokerHost], has_transactions: Callable[[str], bool]) -> None:
        self._hosts = hosts
        self._has_transactions = has_transactions
        #: For each broker and partition at the last check: the broker program that led the partition, the leader
        #: epoch, the log, and the last stable offset.
        self._led: dict[tuple[int, TopicPartition], tuple[BrokerProgram, int, ScannedLog, int]] = {}

    def look(self) -> list[ScannedLog]:
        """Checks every log of which a running broker is the leader. Returns the checked logs. Raises ViolationError if
        an invariant is violated."""
        found = []
        for host in self._hosts:
            if not host.is_up or host.program.broker is None:
                continue
            for topic in host.program.broker.view.topics.values():
                for partition in topic.partitions if self._has_transactions(topic.name) else ():
                    log = host.program.broker.directories.logs.get(partition.topic_partition)
                    if partition.is_served and log is not None:
                        found.append(self._look_at(host, partition.topic_partition, partition.leader_epoch, log))
        return found

    def _look_at(
        self, host: BrokerHost, topic_partition: TopicPartition, leader_epoch: int, log: PartitionLog
    ) -> ScannedLog:
        before = self._led.get((host.number, topic_partition))
        stable = log.last_stable_offset
        if before is None or before[0] is not host.program or before[1] != leader_epoch:
            scanned = ScannedLog(log)
        else:
            scanned = before[2]
            if stable < before[3]:
                raise ViolationError(
                    f"the last stable offset of {topic_partition} goes back from {before[3]} to {stable} on {host.name}"
                )
        scanned.read_on()
        if stable > log.high_watermark:
            raise ViolationError(
                f"the last stable offset of {topic_partition} is {stable} on {host.name}, and the high watermark "
                f"{log.high_watermark}"
            )
        first = min(scanned.open.values(), default=stable)
        if stable > first:
            raise ViolationError(
                f"the last stable offset of {topic_partition} is {stable} on {host.name}, and a transaction is open "
                f"at {first}"
            )
        self._led[host.number, topic_partition] = host.program, leader_epoch, scanned, stable
        return scanned
