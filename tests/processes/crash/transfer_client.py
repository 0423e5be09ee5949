"""One client of librdkafka (confluent-kafka) in a bank whose transfers are a topic and whose entries are another.

    transfer_client.py work BOOTSTRAP NAME TRANSACTIONAL_ID HISTORY [ISOLATION]
    transfer_client.py watch BOOTSTRAP NAME HISTORY ISOLATION

`work` is a member of a group that consumes transfers and makes two entries for each, a debit and a credit, in one
transaction with the offsets. Each fifth transaction is aborted and repeated. An abort drops the records that are not
written yet. Before each second abort all records are written. A producer that is fenced, or cannot continue, ends the
process with code 3, and the process must be started again.

`watch` writes transfers, follows all entries and prints the number of transfers that it has seen whole. From time to
time it asks for the last stable offsets and reads up to them (`stable` in the history).

stdin     of `work`: at its end, it finishes. Of `watch`: "end" ends the transfers, and prints "complete" when all are
          seen. At "last" it waits until no transaction is open, and reads everything once from the beginning
stdout    ready, seen N, fed N, complete; error WHAT: an error of a call; fatal WHAT: the reason for its end

A producer of librdkafka 2.10 and newer may wait forever for a coordinator that was missing in the metadata for a while
(librdkafka's issue 5511). It has no connection then and opens none. Its process starts again after STUCK_SECONDS.
Clients of these releases may also lock themselves up (its issue 5476): a call then does not return at its timeout, and
brokers cannot change this. The process prints the name of the call, and starts again."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place

from jesenska.base.identifiers import TopicPartition
from jesenska.testing.faults.history import ClientHistory, HistoryWriter
from tests.processes.crash.transfers import ENTRIES, GROUP, PARTITIONS, TRANSFERS, Transfer, entries_of

BEGIN_AGAIN = 3
_TRANSFERS_MAX, _PAUSE_SECONDS = 5, 0.1
_AGAIN_SECONDS, _CALL_SECONDS = 0.1, 10.0
_LOOK_SECONDS, _STABLE_SECONDS = 0.3, 90.0
_AHEAD = 150
STUCK_SECONDS = 30.0


def say(*words: object) -> None:
    print(*words, flush=True)


def end_process(code: int, *words: object) -> NoReturn:
    say(*words)
    os._exit(code)


class _BeginAgainError(Exception):
    """This producer cannot continue."""


class _Calls:
    """The calls to librdkafka. A call that has not returned STUCK_SECONDS after its own timeout ends the process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._what = ""
        self._deadline: float | None = None
        threading.Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def within(self, seconds: float, what: str) -> Iterator[None]:
        self._set(what, time.monotonic() + seconds + STUCK_SECONDS)
        try:
            yield
        finally:
            self._set("", None)

    def _set(self, what: str, deadline: float | None) -> None:
        with self._changed:
            self._what, self._deadline = what, deadline
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while True:
                left = None if self._deadline is None else self._deadline - time.monotonic()
                if left is not None and left <= 0:
                    end_process(BEGIN_AGAIN, "fatal", f"{self._what} does not return")
                self._changed.wait(left)


class Worker:
    def __init__(self, bootstrap: str, transactional_id: str, history: ClientHistory, isolation: str) -> None:
        self._history = history
        common = {
            "bootstrap.servers": bootstrap,
            "client.id": history.name,
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,
        }
        self._producer = Producer(
            {**common, "transactional.id": transactional_id, "transaction.timeout.ms": 6000, "linger.ms": 2}
        )
        self._consumer = Consumer(
            {
                **common,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": isolation,
                "session.timeout.ms": 4000,
                "heartbeat.interval.ms": 500,
                # A member that is stuck holds the others up for so long.
                "max.poll.interval.ms": 12_000,
                "partition.assignment.strategy": "range",
            }
        )
        #: Rises with each assignment. Offsets are committed in the name of the member that got the records.
        self._generation = 0
        self._member: Any = None
        self._count = 0
        self._calls = _Calls()
        self.ending = threading.Event()

    def run(self) -> None:
        self._until_done("init", lambda: self._producer.init_transactions(_CALL_SECONDS))
        self._history.transactional()
        self._consumer.subscribe([TRANSFERS], on_assign=self._given, on_revoke=self._taken, on_lost=self._taken)
        say("ready")
        while not self.ending.is_set():
            messages = self._poll()
            if messages:
                self._transaction(messages)
                self.ending.wait(_PAUSE_SECONDS)
        with self._calls.within(_CALL_SECONDS, "close"):
            self._consumer.close()

    def _given(self, consumer: Any, partitions: list[Any]) -> None:
        self._generation += 1
        self._member = consumer.consumer_group_metadata()

    def _taken(self, consumer: Any, partitions: list[Any]) -> None:
        self._generation += 1
        self._member = None

    def _poll(self) -> list[Any]:
        """Some transfers of one assignment."""
        found: list[Any] = []
        generation = self._generation
        while len(found) < _TRANSFERS_MAX:
            with self._calls.within(0.3, "poll"):
                message = self._consumer.poll(0.0 if found else 0.3)
            if self._generation != generation:
                found, generation = [], self._generation
            if message is None:
                break
            if message.error() is not None:
                say("error", message.error())
                continue
            found.append(message)
        return found

    def _transaction(self, messages: list[Any]) -> None:
        self._count += 1
        self._producer.begin_transaction()
        records = []
        for message in messages:
            for partition, value in entries_of(Transfer.decode(message.value()), f"{self._history.name}/{self._count}"):
                self._history.sending(ENTRIES, partition, value)
                self._producer.produce(ENTRIES, value, partition=partition)
                records.append((ENTRIES, partition, value))
        ends = {message.partition(): message.offset() + 1 for message in messages}
        offsets = [Place(TRANSFERS, partition, offset) for partition, offset in ends.items()]
        commits = self._count % 5 != 0
        if self._count % 10 == 0:
            with self._calls.within(_CALL_SECONDS, "flush"):
                self._producer.flush(_CALL_SECONDS)
        try:
            self._until_done(
                "offsets", lambda: self._producer.send_offsets_to_transaction(offsets, self._member, _CALL_SECONDS)
            )
            if commits:
                number = self._history.ending(records, commits=True)
                self._until_done("commit", lambda: self._producer.commit_transaction(_CALL_SECONDS))
                self._history.ended(number, commits=True)
                return
        except KafkaException as error:
            say("error", error)
        self._abort(records)

    def _abort(self, records: list[tuple[str, int, bytes]]) -> None:
        number = self._history.ending(records, commits=False)
        try:
            self._until_done("abort", lambda: self._producer.abort_transaction(_CALL_SECONDS))
        except KafkaException as error:
            raise _BeginAgainError(f"abort: {error}") from error
        self._history.ended(number, commits=False)
        self._rewind()

    def _rewind(self) -> None:
        generation = self._generation
        while self._generation == generation and not self.ending.is_set():
            try:
                with self._calls.within(_CALL_SECONDS, "committed"):
                    keys = self._consumer.assignment()
                    found = self._consumer.committed(keys, timeout=_CALL_SECONDS) if keys else []
                for item in found:
                    if item.error is not None:
                        raise KafkaException(item.error)
                    self._consumer.seek(
                        Place(item.topic, item.partition, item.offset if item.offset >= 0 else OFFSET_BEGINNING)
                    )
                return
            except KafkaException as error:
                say("error rewind:", error)
                time.sleep(_AGAIN_SECONDS)

    def _until_done(self, what: str, call: Callable[[], object]) -> None:
        """Repeats the call while its error is retriable. Raises KafkaException where the transaction must be
        aborted."""
        deadline = time.monotonic() + STUCK_SECONDS
        while True:
            try:
                with self._calls.within(_CALL_SECONDS, what):
                    call()
                return
            except KafkaException as error:
                told: Any = error.args[0]
                if told.retriable():
                    say("error", f"{what}, again:", told)
                    if time.monotonic() > deadline:
                        raise _BeginAgainError(f"{what} is stuck: {told}") from error
                    time.sleep(_AGAIN_SECONDS)
                elif told.txn_requires_abort():
                    raise
                else:
                    raise _BeginAgainError(f"{what}: {told}") from error


class Watcher:
    def __init__(self, bootstrap: str, history: ClientHistory, isolation: str) -> None:
        self._common = {
            "bootstrap.servers": bootstrap,
            "client.id": history.name,
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,
        }
        self._history = history
        self._isolation = isolation
        self._keys = [TopicPartition(ENTRIES, number) for number in range(PARTITIONS)]
        self._fed = 0
        self._seen = 0
        self._half: set[int] = set()
        self._ending, self._is_fed, self._last = threading.Event(), threading.Event(), threading.Event()

    def listen(self) -> None:
        for line in sys.stdin:
            {"end": self._ending, "last": self._last}[line.strip()].set()

    def feed(self) -> None:
        chance = Random(7)
        producer = Producer({**self._common, "enable.idempotence": True, "linger.ms": 5})
        while not self._ending.is_set():
            producer.poll(0.02)
            if self._fed - self._seen < _AHEAD:
                transfer = Transfer.draw(self._fed, chance)
                producer.produce(
                    TRANSFERS, transfer.encode(), partition=transfer.number % PARTITIONS, on_delivery=_must_be_there
                )
                self._fed += 1
        while producer.flush(_CALL_SECONDS):
            pass
        say("fed", self._fed)
        self._is_fed.set()

    def _consumer(self, group: str) -> Any:
        settings = {
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
        return Consumer({**self._common, **settings, "isolation.level": self._isolation, "fetch.wait.max.ms": 100})

    def run(self) -> None:
        consumer = self._consumer("watcher")
        at = dict.fromkeys(self._keys, 0)
        consumer.assign([Place(*key, 0) for key in self._keys])
        looked = time.monotonic()
        is_complete = False
        while not self._last.is_set():
            self._take(consumer, at)
            if time.monotonic() < looked + _LOOK_SECONDS:
                continue
            ends = {key: _end(consumer, key) for key in self._keys}
            while any(at[key] < end for key, end in ends.items()):
                self._take(consumer, at)
            self._history.stable(ends)
            say("seen", self._seen)
            if self._is_fed.is_set() and self._seen >= self._fed and not is_complete:
                is_complete = True
                say("complete")
            looked = time.monotonic()
        consumer.close()
        self._read_everything()

    def _take(self, consumer: Any, at: dict[TopicPartition, int]) -> None:
        shown: dict[TopicPartition, list[tuple[int, bytes | None]]] = {}
        for message in consumer.consume(500, 0.1):
            key = TopicPartition(message.topic() or ENTRIES, message.partition())
            if message.error() is not None:
                if message.error().code() == KafkaError._PARTITION_EOF:
                    at[key] = max(at[key], message.offset())
                else:
                    say("error", message.error())
                continue
            shown.setdefault(key, []).append((message.offset(), message.value()))
            at[key] = message.offset() + 1
        for key, records in shown.items():
            self._history.polled(key, records)
            for _, value in records:
                assert value is not None
                number = int(value.split(b":")[1])
                if number in self._half:
                    self._half.discard(number)
                    self._seen += 1
                else:
                    self._half.add(number)

    def _read_everything(self) -> None:
        consumer = self._consumer("last-reader")
        written = Consumer({**self._common, "group.id": "uncommitted", "isolation.level": "read_uncommitted"})
        deadline = time.monotonic() + _STABLE_SECONDS
        while (stable := {key: _end(consumer, key) for key in self._keys}) != (
            ends := {key: _end(written, key) for key in self._keys}
        ):
            if time.monotonic() > deadline:
                end_process(
                    1, "fatal", f"transactions stay open: the last stable offsets are {stable}, the ends {ends}"
                )
            time.sleep(_AGAIN_SECONDS)
        written.close()
        self._history.full_read(self._keys)
        at = dict.fromkeys(self._keys, 0)
        consumer.assign([Place(*key, 0) for key in self._keys])
        while any(at[key] < end for key, end in ends.items()):
            self._take(consumer, at)
        self._history.full_read_ended({key: (0, end) for key, end in ends.items()})
        consumer.close()


def _must_be_there(error: Any, message: Any) -> None:
    if error is not None:
        end_process(1, "fatal", f"a transfer was not written: {error}")


def _end(consumer: Any, key: TopicPartition) -> int:
    """The offset at which reading ends: the last stable offset for a reader of committed records."""
    while True:
        try:
            return int(consumer.get_watermark_offsets(Place(*key), timeout=_CALL_SECONDS, cached=False)[1])
        except KafkaException as error:
            say("error end:", error)
            time.sleep(_AGAIN_SECONDS)


def _guarded(work: Callable[[], None]) -> None:
    try:
        work()
    except _BeginAgainError as error:
        end_process(BEGIN_AGAIN, "fatal", error)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def main(mode: str, bootstrap: str, name: str, *more: str) -> None:
    if mode == "work":
        transactional_id, path, *rest = more
        with HistoryWriter(Path(path)) as history:
            worker = Worker(bootstrap, transactional_id, history.client(name), rest[0] if rest else "read_committed")

            def listen() -> None:
                sys.stdin.read()
                worker.ending.set()

            threading.Thread(target=listen, daemon=True).start()
            _guarded(worker.run)
    else:
        path, isolation = more
        with HistoryWriter(Path(path)) as history:
            watcher = Watcher(bootstrap, history.client(name), isolation)
            for work in (watcher.listen, watcher.feed):
                threading.Thread(target=_guarded, args=(work,), daemon=True).start()
            _guarded(watcher.run)


if __name__ == "__main__":
    main(*sys.argv[1:])
