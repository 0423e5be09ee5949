"""Clients of librdkafka (confluent-kafka) at work on one topic: an idempotent producer, two members of a group that
commit the offsets of their records, and a client that asks for the group's committed offsets all the time. Each writes
its actions and results into a history (`jesenska.testing.faults.history`). `client_process` starts this program and
reads its output.

    rdkafka_clients.py BOOTSTRAP TOPIC PARTITIONS GROUP HISTORY

All settings are librdkafka's defaults, except those that the task needs: idempotence, commits by hand, a beginning for
the group.

stdout    error CLIENT: an error of a callback or a call
          notice CLIENT: a connection broke or could not be made, which librdkafka only reports; or the coordinator has
          moved. A call for committed offsets returns NOT_COORDINATOR then, librdkafka looks for the new one, and the
          application has to ask again (Java's client does so itself). A commit is kept for the next coordinator once.
          If that moves, too, before it is sent, the error is _WAIT_COORD or NOT_COORDINATOR
          stuck CLIENT: this consumer cannot be closed
stdin     at its end, the producer delivers its records, everything is read once from the beginning, and the group
          commits all of it. The exit code is 0 then. It is 1 where this takes longer than END_SECONDS

A consumer of librdkafka 2.10 and newer may lock itself up for good while a broker leaves the metadata (librdkafka's
issue 5476: two of its threads take two locks in opposite orders). It then reads nothing, sends no heartbeat and cannot
be closed, and brokers cannot change this. The group must go on without it.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place

from jesenska.base.identifiers import TopicPartition
from jesenska.testing.faults.history import ClientHistory, HistoryWriter

Value = TypeVar("Value")

MEMBERS = 2
#: Records that may wait for their acknowledgement, how many are sent between two pauses, and those.
_WINDOW, _BURST, _PAUSE_SECONDS = 100, 10, 0.02
_POLL_SECONDS, _POLL_RECORDS = 0.2, 200
_LOOK_SECONDS, _AGAIN_SECONDS, _ASK_SECONDS = 0.3, 0.05, 10.0
END_SECONDS = 240.0
#: So long a consumer may take to be closed.
_CLOSE_SECONDS = 20.0


def say(what: str, client: str, text: object) -> None:
    print(f"{what} {client}: {text}", flush=True)


def guarded(work: Callable[..., None], *arguments: object) -> None:
    """Runs a thread's work. A thread that fails ends the process, so that the parent process notices it at once."""
    try:
        work(*arguments)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


class Clients:
    def __init__(self, bootstrap: str, topic: str, partitions: int, group: str, history: HistoryWriter) -> None:
        self._bootstrap, self._topic, self._group = bootstrap, topic, group
        self._keys = [TopicPartition(topic, number) for number in range(partitions)]
        self._history = history
        self._produced, self._ended = threading.Event(), threading.Event()
        self._committed: dict[TopicPartition, int] = {}
        self._looked = threading.Condition()

    def run(self) -> None:
        producing = self._thread("librdkafka-producer", self._produce)
        others = [self._thread(f"librdkafka-member-{number}", self._read_in_group) for number in range(MEMBERS)]
        others.append(self._thread("librdkafka-looker", self._look_at_offsets))
        sys.stdin.read()
        faulthandler.dump_traceback_later(END_SECONDS, exit=True)
        self._produced.set()
        producing.join()
        ends = self._read_everything()
        with self._looked:
            self._looked.wait_for(lambda: all(self._committed.get(key, -1) >= end for key, end in ends.items() if end))
        self._ended.set()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in others:
            thread.join(max(0.0, deadline - time.monotonic()))
        stuck = [thread.name for thread in others if thread.is_alive()]
        for name in stuck:
            say("stuck", name, "it cannot be closed")
        if stuck:
            os._exit(0)

    @staticmethod
    def _thread(name: str, work: Callable[[str], None]) -> threading.Thread:
        thread = threading.Thread(target=guarded, args=(work, name), name=name)
        thread.start()
        return thread

    def settings(self, name: str, more: Mapping[str, object]) -> dict[str, object]:
        def told(error: Any) -> None:
            say("error" if error.fatal() else "notice", name, error)

        return {"bootstrap.servers": self._bootstrap, "client.id": name, "error_cb": told, **more}

    # --- producer ----------------------------------------------------------------------------------------------------

    def _produce(self, name: str) -> None:
        history = self._history.client(name)
        history.producer(acks=-1, idempotent=True, max_in_flight=5)
        producer = Producer(self.settings(name, {"enable.idempotence": True}))

        def outcome(number: int, value: bytes) -> Callable[[Any, Any], None]:
            def told(error: Any, message: Any) -> None:
                if error is None:
                    # The offset is unknown where an earlier attempt had already written the record.
                    offset = -1 if message.offset() is None else message.offset()
                    history.acknowledged(number, message.topic(), message.partition(), offset, value)
                else:
                    history.failed(number, certain=False)
                    say("error", name, f"record {number}: {error}")

            return told

        count = 0
        while not self._produced.is_set():
            if len(producer) >= _WINDOW:
                producer.poll(_PAUSE_SECONDS)
                continue
            value, partition = f"{name}-{count}".encode(), count % len(self._keys)
            number = history.sending(self._topic, partition, value)
            producer.produce(self._topic, value, partition=partition, on_delivery=outcome(number, value))
            producer.poll(0)
            count += 1
            if count % _BURST == 0:
                self._produced.wait(_PAUSE_SECONDS)
        while producer.flush(_ASK_SECONDS):
            pass

    # --- group -------------------------------------------------------------------------------------------------------

    def _read_in_group(self, name: str) -> None:
        settings = self.settings(
            name, {"group.id": self._group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        )
        member = _Member(Consumer(settings), self._topic, self._group, self._history.client(name))
        try:
            while not self._ended.is_set():
                member.read()
                if not member.commit():
                    self._ended.wait(_AGAIN_SECONDS)
        finally:
            member.close()

    def _look_at_offsets(self, name: str) -> None:
        history = self._history.client(name)
        consumer = Consumer(self.settings(name, {"group.id": self._group, "enable.auto.commit": False}))
        while True:
            is_last = self._ended.wait(_LOOK_SECONDS)
            began_ns = history.now_ns()
            found = self._until_answered(name, lambda: committed(consumer, self._keys))
            for key, offset in found.items():
                history.found(began_ns, self._group, key, offset)
            with self._looked:
                self._committed = found
                self._looked.notify_all()
            if is_last:
                break
        consumer.close()

    def _until_answered(self, name: str, ask: Callable[[], Value]) -> Value:
        """Asks again while the answer is an error, and prints each error."""
        while True:
            try:
                return ask()
            except KafkaException as error:
                say_of_offsets(name, error)
            time.sleep(_AGAIN_SECONDS)

    # --- everything --------------------------------------------------------------------------------------------------

    def _read_everything(self) -> dict[TopicPartition, int]:
        """Reads each partition to its end. Returns the end offsets."""
        name = "librdkafka-last-reader"
        history = self._history.client(name)
        settings = {"group.id": f"{self._group}-last-reader", "enable.auto.commit": False, "auto.offset.reset": "error"}
        consumer = Consumer(self.settings(name, settings))
        history.full_read(self._keys)
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        for key in self._keys:

            def ask(key: TopicPartition = key) -> tuple[int, int]:
                low, high = consumer.get_watermark_offsets(Place(*key), timeout=_ASK_SECONDS, cached=False)
                return low, high

            ranges[key] = self._until_answered(name, ask)
        consumer.assign([Place(*key, low) for key, (low, _) in ranges.items()])
        at = {key: low for key, (low, _) in ranges.items()}
        while any(at[key] < high for key, (_, high) in ranges.items()):
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                say("error", name, message.error())
                continue
            key, offset, value = shown(message)
            history.polled(key, [(offset, value)])
            at[key] = offset + 1
        history.full_read_ended(ranges)
        consumer.close()
        return {key: high for key, (_, high) in ranges.items()}


def shown(message: Any) -> tuple[TopicPartition, int, bytes | None]:
    """The partition and the offset of a record, and its value."""
    return TopicPartition(message.topic(), message.partition()), message.offset(), message.value()


def committed(consumer: Any, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The committed offsets, -1 where there is none. Raises KafkaException where one partition is answered with an
    error."""
    found = {}
    for item in consumer.committed([Place(*key) for key in keys], timeout=_ASK_SECONDS):
        if item.error is not None:
            raise KafkaException(item.error)
        found[TopicPartition(item.topic, item.partition)] = max(item.offset, -1)
    return found


def say_of_offsets(name: str, error: Any) -> None:
    """Prints the error of a call for committed offsets."""
    say("notice" if error.args[0].code() == KafkaError.NOT_COORDINATOR else "error", name, error)


def say_of_commit(name: str, error: Any) -> None:
    """Prints the error of a commit."""
    has_moved = error.code() in (KafkaError.NOT_COORDINATOR, KafkaError._WAIT_COORD)
    say("notice" if has_moved else "error", name, f"commit: {error}")


class _Member:
    """A member of a group that notes the records that it gets and the offsets that it commits."""

    def __init__(self, consumer: Any, topic: str, group: str, history: ClientHistory) -> None:
        self._consumer, self._group, self._history = consumer, group, history
        #: Records that the history has not got yet, and offsets that are not committed yet.
        self._shown: dict[TopicPartition, list[tuple[int, bytes | None]]] = {}
        self._owed: dict[TopicPartition, int] = {}
        consumer.subscribe([topic], on_assign=self._given, on_revoke=self._taken, on_lost=self._taken)

    def close(self) -> None:
        self._consumer.close()

    def _given(self, consumer: Any, partitions: list[Any]) -> None:
        """Starts at the offsets that the group has committed, and notes them."""
        self._write()
        keys = [TopicPartition(item.topic, item.partition) for item in partitions]
        began_ns = self._history.now_ns()
        try:
            found = committed(consumer, keys) if keys else {}
        except KafkaException as error:
            # librdkafka assigns them itself, and asks itself for the offsets at which they begin.
            say_of_offsets(self._history.name, error)
            self._history.assigned(keys, dict.fromkeys(keys))
            return
        for key, offset in found.items():
            self._history.found(began_ns, self._group, key, offset)
        self._history.assigned(keys, {key: max(offset, 0) for key, offset in found.items()})
        consumer.assign([Place(*key, offset if offset >= 0 else OFFSET_BEGINNING) for key, offset in found.items()])

    def _taken(self, consumer: Any, partitions: list[Any]) -> None:
        self._write()
        self._owed.clear()
        self._history.assigned([], {})

    def _write(self) -> None:
        shown, self._shown = self._shown, {}
        for key, records in shown.items():
            self._history.polled(key, records)

    def read(self) -> None:
        """Takes the available records, one at a time, so that records after a rebalance are recognised."""
        message = self._consumer.poll(_POLL_SECONDS)
        taken = 0
        while message is not None:
            if message.error() is not None:
                say("error", self._history.name, message.error())
            else:
                key, offset, value = shown(message)
                self._shown.setdefault(key, []).append((offset, value))
                self._owed[key] = offset + 1
            taken += 1
            message = self._consumer.poll(0) if taken < _POLL_RECORDS else None
        self._write()

    def commit(self) -> bool:
        """Commits all offsets that are not committed yet. False where the commit was refused."""
        if not self._owed:
            return True
        numbers = {key: self._history.committing(self._group, key, offset) for key, offset in self._owed.items()}
        try:
            answer = self._consumer.commit(
                offsets=[Place(*key, offset) for key, offset in self._owed.items()], asynchronous=False
            )
        except KafkaException as error:
            say_of_commit(self._history.name, error.args[0])
            return False
        for item in answer:
            key = TopicPartition(item.topic, item.partition)
            if item.error is not None:
                say_of_commit(self._history.name, item.error)
                continue
            self._history.committed(numbers[key], self._group, key, self._owed.pop(key))
        return not self._owed


def main(bootstrap: str, topic: str, partitions: str, group: str, path: str) -> None:
    with HistoryWriter(path) as history:
        Clients(bootstrap, topic, int(partitions), group, history).run()


if __name__ == "__main__":
    guarded(main, *sys.argv[1:])
