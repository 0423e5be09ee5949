"""Apache Kafka Streams at work on a cluster: what is written for it, what its results must be, and what they are.

Each word of `lines` makes one record of `counts`: the word, and how often it has come. Each key of `left` and `right`
makes one record of `pairs`. So each result must be there once, whatever was killed meanwhile."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import Any

from jesenska.testing.faults import LoadFailedError
from tests.conformance.conftest import need, need_modules
from tests.crash.talking_process import Process
from tests.peers.apache_kafka import java_command
from tests.peers.java_programs import class_path_and_program

INPUTS, OUTPUTS = ("lines", "left", "right"), ("counts", "pairs")
PARTITIONS = 2
_WORDS, _WORDS_PER_LINE = 40, 3
#: Keys that are written and not yet paired.
_AHEAD = 60
_SECONDS, _CALL_SECONDS, _AGAIN_SECONDS = 240.0, 10.0, 0.05


def command(release: str) -> list[str]:
    """What runs the program with that release; skips, or fails in CI, where something is missing for it."""
    need("java", "mvn")
    need_modules("confluent_kafka")
    found = java_command(release, "StreamsProgram", heap="128m", log_level="ERROR")
    found[-2:] = class_path_and_program(release, "StreamsProgram", streams=True)
    return found


class StreamsLoad:
    """A load of `faults.apply`: instances of the program, and what is written for them; it gets on by pairs that are
    read."""

    def __init__(self, bootstrap: str, release: str, instances: int, directory: Path, seed: int) -> None:
        self._bootstrap = bootstrap
        program = [*command(release), bootstrap, "program"]
        self.instances = [Process(f"streams-{number}", [*program, str(directory / f"state-{number}")], directory) for number in range(instances)]
        self._chance = Random(seed)
        self.words: Counter[str] = Counter()
        self.keys = 0
        #: The results: (key, value) in the order of each partition.
        self.results: dict[tuple[str, int], list[tuple[str, str]]] = defaultdict(list)
        self._pairs = 0
        self._counts = 0
        self._ending, self._ended = threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        self._threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self._write, self._read)]

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            self._failure = error
            raise

    def start(self) -> None:
        for instance in self.instances:
            instance.start()
        for thread in self._threads:
            thread.start()
        try:
            self._until(lambda: self._pairs > 0 and self._counts > 0, "there are no results")
        except BaseException:
            self._kill()
            raise

    def steps(self) -> int:
        for instance in self.instances:
            if instance.code is not None:
                raise instance.failure(f"has ended with {instance.code}")
        if self._failure is not None:
            raise LoadFailedError("The load has failed.") from self._failure
        return self._pairs

    def _until(self, is_so: Any, what: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not is_so():
            self.steps()
            if time.monotonic() > deadline:
                error = LoadFailedError(f"After {_SECONDS:g} s {what}: {self._pairs} of {self.keys} pairs, {self._counts} of {self.words.total()} counts.")
                error.add_note("\n".join(f"{item.failure('says')}{item.failure('').__notes__}" for item in self.instances))
                raise error
            time.sleep(_AGAIN_SECONDS)

    def stop(self) -> None:
        """Everything written has its result; then the instances end, and no transaction stays open."""
        try:
            self._ending.set()
            self._threads[0].join(_SECONDS)
            self._until(lambda: self._pairs >= self.keys and self._counts >= self.words.total(), "results are missing")
            for instance in self.instances:
                assert instance.finish() == 0
        finally:
            self._kill()

    def _kill(self) -> None:
        self._ending.set()
        self._ended.set()
        for instance in self.instances:
            instance.kill()
        for thread in self._threads:
            thread.join(_SECONDS)

    # --- threads -----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        from confluent_kafka import Producer

        def told(error: Any, message: Any) -> None:
            if error is not None:
                raise LoadFailedError(f"A record was not written: {error}")

        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 2})
        while not self._ending.is_set():
            producer.poll(0.03)
            if self.keys - self._pairs >= _AHEAD:
                continue
            words = [f"word-{self._chance.randrange(_WORDS)}" for _ in range(_WORDS_PER_LINE)]
            self.words.update(words)
            for topic, value in (("lines", " ".join(words)), ("left", f"left {self.keys}"), ("right", f"right {self.keys}")):
                producer.produce(topic, value, str(self.keys), on_delivery=told)
            self.keys += 1
        while producer.flush(_CALL_SECONDS):
            pass

    def _read(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"group.id": "reader", "enable.auto.commit": False, "isolation.level": "read_committed", "auto.offset.reset": "error", "log_level": 2}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **settings})
        consumer.assign([TopicPartition(topic, number, 0) for topic in OUTPUTS for number in range(PARTITIONS)])
        while not self._ended.is_set():
            for message in consumer.consume(500, 0.1):
                if message.error() is not None:
                    continue
                key, value = message.key(), message.value()
                assert key is not None and value is not None
                topic = str(message.topic())
                self.results[topic, int(message.partition() or 0)].append((key.decode(), value.decode()))
                if topic == "pairs":
                    self._pairs += 1
                else:
                    self._counts += 1
        consumer.close()

    # --- judgement ---------------------------------------------------------------------------------------------------

    def wrong(self) -> list[str]:
        """What differs from what the input asks for; nothing where all is right."""
        return wrong(self.results, self.words, self.keys)


def wrong(results: dict[tuple[str, int], list[tuple[str, str]]], words: Counter[str], keys: int) -> list[str]:
    """`words`: how often each was written; keys are numbered from 0."""
    counted: dict[str, list[int]] = defaultdict(list)
    pairs: Counter[tuple[str, str]] = Counter()
    for (topic, _), records in results.items():
        for key, value in records:
            if topic == "counts":
                counted[key].append(int(value))
            else:
                pairs[key, value] += 1
    found = [
        f"{word} was written {words[word]} times and counted {_shown(counted[word])}"
        for word in sorted(counted.keys() | words.keys())
        if counted[word] != list(range(1, words[word] + 1))
    ]
    wanted = Counter((str(key), f"left {key}+right {key}") for key in range(keys))
    if pairs != wanted:
        found.append(f"pairs too many: {list((pairs - wanted).items())[:5]}; missing: {list((wanted - pairs).items())[:5]}")
    return found


def _shown(counts: list[int]) -> str:
    """Where counts do not go up by one."""
    odd = [(before, after) for before, after in zip([0, *counts], counts, strict=False) if after != before + 1]
    return f"up to {counts[-1] if counts else 0}, with the steps {odd[:5]}"
