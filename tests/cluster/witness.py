"""Somebody who looks all the time at what the brokers of a cluster tell, and finds what must never be:

two leaders      one leader epoch of a partition is told with two leaders, by whomever and whenever
back in time     one broker tells a lower leader epoch of a partition than before"""

from __future__ import annotations

import threading
import uuid
from types import TracebackType
from typing import Self

from tests.cluster.cluster import BrokerCluster
from tests.cluster.view import View, view_of
from tests.raw_connection import ClosedByBrokerError

_PAUSE_SECONDS = 0.05
_ANSWER_SECONDS = 1.0

#: A partition, by its topic's id and its number.
_Key = tuple[uuid.UUID, int]


class Witness:
    """Looks from the beginning of the `with` block to its end; AssertionError there if it has found something."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self._cluster = cluster
        self._leaders: dict[tuple[_Key, int], int] = {}
        #: By broker and start of its process.
        self._epochs: dict[tuple[int, int, _Key], int] = {}
        self._findings: list[str] = []
        self._looks = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(60)
        if error is not None:
            error.add_note(f"the witness has found {self._findings}")
        else:
            assert self._findings == []
            assert self._looks > 0, "no broker has told anything"

    def _run(self) -> None:
        while not self._stopping.is_set():
            for broker_id in self._cluster.answering:
                try:
                    broker = self._cluster.brokers[broker_id]
                    process = broker.process.pid
                    view = view_of(broker.address, _ANSWER_SECONDS)
                except (OSError, ClosedByBrokerError, AssertionError):
                    continue  # it is on its way down, or up
                self.look(broker_id, process, view)
            self._stopping.wait(_PAUSE_SECONDS)

    def look(self, broker_id: int, process: int, view: View) -> None:
        """One broker, running as that process, has told this."""
        self._looks += 1
        for topic, partitions in view.topics.items():
            for number, partition in enumerate(partitions):
                key, epoch, leader = (view.topic_ids[topic], number), partition.leader_epoch, partition.leader
                if epoch < 0:
                    continue
                if leader >= 0:
                    first = self._leaders.setdefault((key, epoch), leader)
                    if first != leader:
                        self._findings.append(
                            f"{topic}-{number} has in leader epoch {epoch} the leaders {first} and {leader}, the "
                            f"latter told by {broker_id}"
                        )
                before = self._epochs.get((broker_id, process, key), -1)
                if epoch < before:
                    self._findings.append(
                        f"broker {broker_id} tells leader epoch {epoch} of {topic}-{number}, after {before}"
                    )
                self._epochs[broker_id, process, key] = epoch
