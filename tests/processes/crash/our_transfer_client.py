"""One client of our own in the bank. `transfer_client` is the same with librdkafka.

    our_transfer_client.py work BOOTSTRAP NAME TRANSACTIONAL_ID HISTORY

It works as examples/consume_transform_produce.py does: a transaction that fails is aborted, and a new member reads its
input again. The client aborts each fifth transaction. A producer that is fenced ends the process with code 3.

stdin     at its end, the client finishes
stdout    ready; error WHAT: an error of a call; fatal WHAT: the reason for its end"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping, Sequence

from jesenska.base.errors import KafkaError, ProducerFencedError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.cluster import Cluster
from jesenska.client.group import GroupConsumer
from jesenska.client.membership.options import MembershipOptions
from jesenska.client.positions import Position
from jesenska.client.producer import Producer
from jesenska.records.record import Record
from jesenska.testing.faults.history import ClientHistory, HistoryWriter
from jesenska.testing.faults.load import cluster_of
from tests.processes.crash.transfers import ENTRIES, GROUP, TRANSFERS, Transfer, entries_of

_BEGIN_AGAIN = 3
_TRANSFERS_MAX, _PAUSE_SECONDS, _AGAIN_SECONDS = 5, 0.1, 0.2


def _say(*words: object) -> None:
    print(*words, flush=True)


class _ToBeAbortedError(Exception):
    """The current transaction must be aborted."""


class Worker:
    def __init__(self, bootstrap: str, transactional_id: str, history: ClientHistory) -> None:
        self._bootstrap, self._transactional_id, self._history = bootstrap, transactional_id, history
        self._count = 0
        self.ending = threading.Event()

    async def run(self) -> None:
        self._history.transactional()
        while not self.ending.is_set():
            cluster = cluster_of(self._bootstrap, self._history.name)
            try:
                await self._work(cluster)
            except _ToBeAbortedError:
                pass
            except ProducerFencedError:
                raise
            except KafkaError as error:
                _say("error", repr(error))
                await asyncio.sleep(_AGAIN_SECONDS)
            finally:
                await cluster.close()

    async def _work(self, cluster: Cluster) -> None:
        async with (
            Producer(
                cluster, transactional_id=self._transactional_id, transaction_timeout_seconds=6.0, linger_seconds=0.002
            ) as producer,
            GroupConsumer(
                cluster,
                GROUP,
                [TRANSFERS],
                MembershipOptions(
                    assignors=("range",),
                    session_timeout_seconds=4.0,
                    max_poll_interval_seconds=12.0,
                    heartbeat_seconds=0.5,
                ),
                auto_offset_reset="earliest",
                auto_commit_seconds=None,
                isolation_level=1,
            ) as consumer,
        ):
            await producer.init_transactions()
            _say("ready")
            while not self.ending.is_set():
                polled = await consumer.poll(0.3, _TRANSFERS_MAX)
                if polled:
                    await self._transaction(producer, consumer, polled)
                    await asyncio.sleep(_PAUSE_SECONDS)

    async def _transaction(
        self, producer: Producer, consumer: GroupConsumer, polled: Mapping[TopicPartition, Sequence[Record]]
    ) -> None:
        self._count += 1
        written: list[tuple[str, int, bytes]] = []
        commits = self._count % 5 != 0
        producer.begin_transaction()
        try:
            for records in polled.values():
                for record in records:
                    for partition, value in entries_of(
                        Transfer.decode(bytes(record.value or b"")), f"{self._history.name}/{self._count}"
                    ):
                        self._history.sending(ENTRIES, partition, value)
                        written.append((ENTRIES, partition, value))
                        await producer.send(ENTRIES, value, partition=partition)
            ends = {key: Position(records[-1].offset + 1) for key, records in polled.items()}
            await producer.send_offsets_to_transaction(ends, consumer.group_metadata())
            if commits:
                number = self._history.ending(written, commits=True)
                await producer.commit_transaction()
                self._history.ended(number, commits=True)
                return
            raise _ToBeAbortedError
        except (KafkaError, _ToBeAbortedError):
            if producer.transactions is not None and producer.transactions.may_abort:
                number = self._history.ending(written, commits=False)
                await producer.abort_transaction()
                self._history.ended(number, commits=False)
            raise


def main(mode: str, bootstrap: str, name: str, transactional_id: str, path: str) -> None:
    assert mode == "work"
    with HistoryWriter(path) as history:
        worker = Worker(bootstrap, transactional_id, history.client(name))

        def listen() -> None:
            sys.stdin.read()
            worker.ending.set()

        threading.Thread(target=listen, daemon=True).start()
        try:
            asyncio.run(worker.run())
        except ProducerFencedError as error:
            _say("fatal", error)
            sys.exit(_BEGIN_AGAIN)


if __name__ == "__main__":
    main(*sys.argv[1:])
