"""Apache Kafka Streams at work on a cluster: its input, the expected results, and the actual results.

Each word of `lines` makes one record of `counts`: the word, and the number of times that it has occurred. Each key of
`left` and `right` makes one record of `pairs`. So each result must be there once, although processes were killed
meanwhile. Our own client writes the input and reads the results."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from random import Random

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.producer import Producer, RecordMetadata
from jesenska.testing.faults import LoadFailedError
from jesenska.testing.faults.load import cluster_of
from tests.conformance.conftest import need
from tests.peers.java_programs import command_of
from tests.processes.crash.talking_process import Process

INPUTS, OUTPUTS = ("lines", "left", "right"), ("counts", "pairs")
PARTITIONS = 2
_WORDS, _WORDS_PER_LINE = 40, 3
#: Keys that are written and not yet paired.
_AHEAD = 60
_SECONDS, _AGAIN_SECONDS, _PAUSE_SECONDS = 240.0, 0.05, 0.03


def command(release: str) -> list[str]:
    """The command that runs the program with this release. Skips, or fails in CI, where a program for it is
    missing."""
    need("java", "mvn")
    return command_of(release, "StreamsProgram", heap="128m", log_level="ERROR", streams=True)


class StreamsLoad:
    """A load of `faults.apply`: instances of the program, and their input. Its progress is the number of pairs that
    were read."""

    def __init__(self, bootstrap: str, release: str, instances: int, directory: Path, seed: int) -> None:
        self._bootstrap = bootstrap
        program = [*command(release), bootstrap, "program"]
        self.instances = [
            Process(f"streams-{number}", [*program, str(directory / f"state-{number}")], directory)
            for number in range(instances)
        ]
        self._chance = Random(seed)
        self.words: Counter[str] = Counter()
        self.keys = 0
        #: The results: (key, value) in the order of each partition.
        self.results: dict[tuple[str, int], list[tuple[str, str]]] = defaultdict(list)
        self._pairs = 0
        self._counts = 0
        self._ending, self._is_written, self._ended = threading.Event(), threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:
            self._failure = error

    def start(self) -> None:
        for instance in self.instances:
            instance.start()
        self._thread.start()
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

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not is_so():
            self.steps()
            if time.monotonic() > deadline:
                error = LoadFailedError(
                    f"After {_SECONDS:g} s {what}: {self._pairs} of {self.keys} pairs, {self._counts} of "
                    f"{self.words.total()} counts."
                )
                error.add_note(
                    "\n".join(f"{item.failure('says')}{item.failure('').__notes__}" for item in self.instances)
                )
                raise error
            time.sleep(_AGAIN_SECONDS)

    def stop(self) -> None:
        """Waits until all input has its result. Then the instances end, and no transaction stays open."""
        try:
            self._ending.set()
            self._until(self._is_written.is_set, "not everything is written")
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
        if self._thread.is_alive():
            self._thread.join(_SECONDS)

    # --- clients -----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        cluster = cluster_of(self._bootstrap, "streams-load")
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write(cluster))
                tasks.create_task(self._read(cluster))
        finally:
            await cluster.close()

    async def _write(self, cluster: Cluster) -> None:
        async with Producer(cluster, delivery_timeout_seconds=_SECONDS) as producer:
            sent: deque[asyncio.Future[RecordMetadata]] = deque()
            while not self._ending.is_set():
                await asyncio.sleep(_PAUSE_SECONDS)
                while sent and sent[0].done():
                    sent.popleft().result()
                if self.keys - self._pairs >= _AHEAD:
                    continue
                words = [f"word-{self._chance.randrange(_WORDS)}" for _ in range(_WORDS_PER_LINE)]
                self.words.update(words)
                for topic, value in (
                    ("lines", " ".join(words)),
                    ("left", f"left {self.keys}"),
                    ("right", f"right {self.keys}"),
                ):
                    sent.append(await producer.send(topic, value.encode(), str(self.keys).encode()))
                self.keys += 1
            for future in sent:
                await future
        self._is_written.set()

    async def _read(self, cluster: Cluster) -> None:
        keys = [TopicPartition(topic, number) for topic in OUTPUTS for number in range(PARTITIONS)]
        async with Consumer(
            cluster, auto_offset_reset="none", max_wait_seconds=_PAUSE_SECONDS, isolation_level=1
        ) as consumer:
            await consumer.assign(dict.fromkeys(keys, 0))
            while not self._ended.is_set():
                try:
                    found = await consumer.poll(_AGAIN_SECONDS)
                except KafkaError as error:
                    if not error.retriable:
                        raise
                    await asyncio.sleep(_AGAIN_SECONDS)
                    continue
                for key, records in found.items():
                    self.results[key.topic, key.partition] += [
                        (bytes(record.key or b"").decode(), bytes(record.value or b"").decode()) for record in records
                    ]
                    if key.topic == "pairs":
                        self._pairs += len(records)
                    else:
                        self._counts += len(records)

    # --- judgement ---------------------------------------------------------------------------------------------------

    def wrong(self) -> list[str]:
        """The differences from the expected results. Empty where all are right."""
        return wrong(self.results, self.words, self.keys)


def wrong(results: dict[tuple[str, int], list[tuple[str, str]]], words: Counter[str], keys: int) -> list[str]:
    """Returns the mistakes. `words`: the number of times that each was written. Keys are numbered from 0."""
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
        found.append(
            f"pairs too many: {list((pairs - wanted).items())[:5]}; missing: {list((wanted - pairs).items())[:5]}"
        )
    return found


def _shown(counts: list[int]) -> str:
    """The places where counts do not rise by one."""
    odd = [(before, after) for before, after in zip([0, *counts], counts, strict=False) if after != before + 1]
    return f"up to {counts[-1] if counts else 0}, with the steps {odd[:5]}"
