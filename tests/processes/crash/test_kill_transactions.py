"""kill -9 in the middle of transactions, again and again. Each transaction is there whole or not at all, every commit
that was acknowledged is there, and no transaction stays open."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batch
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from tests.conformance.transaction_table import SETTINGS, TOPIC, Asked, Broker, Who
from tests.profiles import rounds
from tests.raw_connection import ClosedByBrokerError, RawConnection

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

_CRASHES = rounds(quick=1, ci=3, everything=10)
_SEED = int(os.environ.get("JESENSKA_SEED", "1"))
_PRODUCERS, _PARTITIONS = 4, 2
_TIMEOUT_MS = 2000
_SECONDS = 30.0
_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Producer:
    """Writes transactions until its broker dies. Each has one record for every partition, which contains its
    number."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self._random = random.Random(seed)
        self._number = 0
        #: Transactions that were acknowledged as committed, and transactions whose end was requested and not answered.
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.unknown: set[bytes] = set()

    def run(self, bootstrap: str) -> None:
        try:
            broker = Broker(bootstrap)
        except OSError:
            return
        try:
            who = self._ask_until_begun(broker)
            while True:
                who = self._one(broker, who)
        except (ClosedByBrokerError, OSError):
            pass
        finally:
            broker.close()

    def _ask_until_begun(self, broker: Broker) -> Who:
        while True:
            answer = broker.ask_init(self.name, timeout_ms=_TIMEOUT_MS)
            if answer.error_code == ErrorCode.NONE:
                return Who(answer.producer_id, answer.producer_epoch)
            assert answer.error_code in _AGAIN, ErrorCode(answer.error_code).name
            time.sleep(0.01)

    def _one(self, broker: Broker, who: Who) -> Who:
        self._number += 1
        value = f"{self.name}-{self._number}".encode()
        asked = Asked(self.name, who)
        for partition in range(_PARTITIONS):
            code = broker.produce(asked, who, 12, partition=partition, value=value)
            if code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, *_AGAIN):
                return self._ask_until_begun(broker)
            assert code == ErrorCode.NONE, ErrorCode(code).name
        commits = self._random.random() < 0.7
        if commits:
            self.unknown.add(value)
        else:
            self.aborted.add(value)
        answer = broker.end(asked, who, 5, commits=commits)
        if answer.error_code != ErrorCode.NONE:
            return self._ask_until_begun(broker)
        if commits:
            self.unknown.discard(value)
            self.committed.add(value)
        return Who(answer.producer_id, answer.producer_epoch)


def _committed(bootstrap: str, partition: int) -> list[bytes]:
    """The values that a read_committed consumer keeps."""
    offset, found = 0, []
    with RawConnection(bootstrap) as connection:
        while True:
            asked = FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                isolation_level=1, max_wait_ms=0, topics=[FetchRequestTopic(topic=TOPIC, partitions=[asked])]
            )
            part = connection.ask(request, 11, FetchResponse).responses[0].partitions[0]
            assert part.error_code == ErrorCode.NONE
            assert part.last_stable_offset == part.high_watermark, "a transaction is open"
            aborted = sorted(
                ((item.first_offset, item.producer_id) for item in part.aborted_transactions or ()), reverse=True
            )
            inside: set[int] = set()
            data = bytes(part.records or b"")  # type: ignore[arg-type]
            for position, header in iter_headers(data):
                if header.next_offset <= offset:
                    continue
                while aborted and aborted[-1][0] <= header.base_offset:
                    inside.add(aborted.pop()[1])
                if header.is_control:
                    inside.discard(header.producer_id)
                elif header.producer_id not in inside:
                    found += [record.value or b"" for record in decode_batch(data, position)]
                offset = header.next_offset
            if offset >= part.high_watermark:
                return found


def test_transactions_are_whole_or_not_there_and_none_stays_open(tmp_path: Path) -> None:
    chance = random.Random(_SEED)
    settings = SETTINGS | {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    producers = [Producer(f"p{number}", _SEED * 100 + number) for number in range(_PRODUCERS)]
    with BrokerProcess(tmp_path / "data", settings=settings, warm=True) as process:
        broker = Broker(process.bootstrap)
        broker.prepare()
        broker.close()
        for _ in range(_CRASHES):
            threads = [threading.Thread(target=producer.run, args=(process.bootstrap,)) for producer in producers]
            for thread in threads:
                thread.start()
            time.sleep(chance.uniform(0.3, 1.2))
            process.kill()
            for thread in threads:
                thread.join(_SECONDS)
            process.start()
        end = time.monotonic() + _SECONDS
        while True:
            broker = Broker(process.bootstrap)
            states = {producer.name: broker.describe(producer.name)[1] for producer in producers}
            broker.close()
            if not [
                state for state in states.values() if state == "Ongoing" or state.startswith("Prepare") or not state
            ]:
                break
            assert time.monotonic() < end, states
            time.sleep(0.05)
        seen = [_committed(process.bootstrap, partition) for partition in range(_PARTITIONS)]
    for values in seen:
        assert len(values) == len(set(values)), "a record is there twice"
    assert set(seen[0]) == set(seen[1]), "a transaction is torn"
    found = set(seen[0])
    committed = set().union(*(producer.committed for producer in producers))
    maybe = set().union(*(producer.unknown for producer in producers))
    assert len(committed) > _CRASHES
    assert committed <= found <= committed | maybe
    assert not found & set().union(*(producer.aborted for producer in producers))
