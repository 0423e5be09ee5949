"""Every client in one table: what it can write and read, and how it is told to.

A client writes and reads many topics in one run, since the start of its process (a JVM above all) takes longer than
that. What it gives back are rows, or the text of the error that it met, topic by topic.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.conformance.conftest import need
from tests.peers.clients import PROJECT, go_client, node_client, python_client
from tests.peers.python.conversation import Row, as_json, from_json
from tests.peers.tools import Outcome, Tools

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OLD_CODECS = CODECS[:-1]
_SECONDS = 120.0
#: For the next record; a console consumer of 0.10 waits so long where the broker answers an error that it does not
#: know.
_CONSOLE_WAIT_MS = 2000

#: What stands between the parts of a record where a tool writes and reads lines; no record of ours has it inside.
_AFTER_KEY, _AFTER_RECORD = "\x1fKEY\x1f", "\x1fEND\x1f"


class Read(NamedTuple):
    """The rows that a client has read of a topic, and the error that ended it, if one did."""

    rows: list[Row]
    error: str | None


Writes = Sequence[tuple[str, str, list[Row]]]
Reads = Sequence[tuple[str, int]]


class Talker:
    """A client in Python, Go or JavaScript, a process for each call (`tests.peers.python.conversation`)."""

    def __init__(self, command: Callable[[], list[str]], options: Mapping[str, object]) -> None:
        self._command = command()
        self._options = dict(options)

    def write(self, bootstrap: str, topics: Writes) -> dict[str, str | None]:
        asked = [[topic, codec, [as_json(row) for row in rows]] for topic, codec, rows in topics]
        return {answer["written"]: answer["error"] for answer in self._ask(bootstrap, write=asked)}

    def read(self, bootstrap: str, topics: Reads) -> dict[str, Read]:
        answers = self._ask(bootstrap, read=list(topics))
        return {answer["read"]: Read([from_json(row) for row in answer["rows"]], answer["error"]) for answer in answers}

    def _ask(self, bootstrap: str, **asked: object) -> list[dict[str, Any]]:
        plan = json.dumps({"bootstrap": bootstrap, "options": self._options, **asked})
        done = subprocess.run(
            self._command,
            input=plan + "\n",
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            cwd=PROJECT,
            env=environment(),
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    def close(self) -> None:
        pass


def environment() -> dict[str, str]:
    """For clients with packages of their own: ours must not stand before theirs."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "PYTHONPATH": str(PROJECT / "src"),
        "PYTHONWARNINGS": "ignore",
    }


class Kcat:
    """kcat, a process for each topic."""

    def __init__(self) -> None:
        need("kcat")

    def write(self, bootstrap: str, topics: Writes) -> dict[str, str | None]:
        return {topic: self._write(bootstrap, topic, codec, rows) for topic, codec, rows in topics}

    def _write(self, bootstrap: str, topic: str, codec: str, rows: list[Row]) -> str | None:
        (headers,) = {tuple(row.headers or ()) for row in rows}
        arguments = [word for name, value in headers for word in ("-H", f"{name}={value.decode()}")]
        given = _AFTER_RECORD.encode().join(
            (b"" if row.key is None else row.key + _AFTER_KEY.encode()) + (row.value or b"") for row in rows
        )
        # The records leave in one batch: librdkafka does not compress one that would grow by it, as that of a single
        # short record does.
        together = ["-X", "linger.ms=60000", "-X", f"batch.num.messages={len(rows)}"]
        done = self._run(
            bootstrap,
            "-P",
            "-t",
            topic,
            "-p",
            "0",
            "-z",
            codec,
            "-K",
            _AFTER_KEY,
            "-D",
            _AFTER_RECORD,
            *together,
            *arguments,
            given=given,
        )
        return done.stderr.decode() if done.returncode else None

    def read(self, bootstrap: str, topics: Reads) -> dict[str, Read]:
        return {topic: self._read(bootstrap, topic, count) for topic, count in topics}

    def _read(self, bootstrap: str, topic: str, count: int) -> Read:
        form = "%T %K %S %h\n%k%s"
        from_the_beginning = ["-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count), "-e", "-q"]
        done = self._run(
            bootstrap, *from_the_beginning, "-X", "check.crcs=true", "-X", "fetch.wait.max.ms=10", "-f", form
        )
        rows, said = [], done.stdout
        while said:
            line, _, said = said.partition(b"\n")
            timestamp_ms, key_size, value_size, *headers = line.decode().split(" ", 3)
            key, said = _cut(said, int(key_size))
            value, said = _cut(said, int(value_size))
            pairs = [
                (name, text.encode())
                for name, _, text in (pair.partition("=") for header in headers if header for pair in header.split(","))
            ]
            rows.append(Row(key, value, int(timestamp_ms), pairs))
        return Read(rows, done.stderr.decode() if done.returncode else None)

    def _run(self, bootstrap: str, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["kcat", "-b", bootstrap, *arguments], input=given, capture_output=True, timeout=_SECONDS, check=False
        )

    def close(self) -> None:
        pass


def _cut(data: bytes, size: int) -> tuple[bytes | None, bytes]:
    return (None, data) if size < 0 else (data[:size], data[size:])


class Console:
    """The console tools of a release of Apache Kafka, all runs in one JVM. Those of 0.8 read through ZooKeeper, where
    `tree` says it is."""

    tree = ""

    def __init__(self, release: str, *producer: str) -> None:
        """`producer`: further arguments of the producer."""
        need("java", "mvn")
        self._files = tempfile.TemporaryDirectory()
        self._numbers = tuple(int(part) for part in release.split("."))
        self._producer = producer
        self._tools = Tools(release)
        self._counted = 0

    def close(self) -> None:
        self._tools.close()
        self._files.cleanup()

    def write(self, bootstrap: str, topics: Writes) -> dict[str, str | None]:
        return {topic: self._write(bootstrap, topic, codec, rows) for topic, codec, rows in topics}

    def _write(self, bootstrap: str, topic: str, codec: str, rows: list[Row]) -> str | None:
        flag = "--reader-property" if self._numbers >= (4,) else "--property"
        arguments = [
            "--bootstrap-server" if self._numbers >= (2, 5) else "--broker-list",
            bootstrap,
            "--topic",
            topic,
            "--compression-codec",
            codec,
        ]
        arguments += ["--request-required-acks", "1", *self._producer]
        with_keys = [flag, "parse.key=true", flag, f"key.separator={_AFTER_KEY}"]
        keyed = [
            (row.key + _AFTER_KEY.encode() if row.key is not None else b"") + (row.value or b"")
            for row in rows
            if row.key is not None
        ]
        others = [row.value or b"" for row in rows if row.key is None]
        assert [row.key is None for row in rows] == [False] * len(keyed) + [True] * len(others), (
            "records with keys come first, in one run, and those without in another"
        )
        for lines, more in ((keyed, with_keys), (others, [])):
            said = self._tools.run("kafka-console-producer", *arguments, *more, given=b"\n".join(lines).decode() + "\n")
            if said.code or "Exception" in said.errors or "ERROR" in said.errors:
                return said.errors
        return None

    def read(self, bootstrap: str, topics: Reads) -> dict[str, Read]:
        return {topic: self._read(bootstrap, topic, count) for topic, count in topics}

    def _read(self, bootstrap: str, topic: str, count: int) -> Read:
        flag = "--formatter-property" if self._numbers >= (4,) else "--property"
        with_headers, with_times = self._numbers >= (2, 7), self._numbers >= (0, 10)
        shown = ["print.key=true", f"key.separator={_AFTER_KEY}", f"line.separator={_AFTER_RECORD}"]
        shown += ["print.timestamp=true"] * with_times + ["print.headers=true"] * with_headers
        arguments: list[object] = ["--topic", topic, "--max-messages", self._counted + count]
        if with_times:
            arguments += [
                "--partition",
                0,
                "--bootstrap-server",
                bootstrap,
                "--offset",
                "earliest",
                "--timeout-ms",
                _CONSOLE_WAIT_MS,
            ]
            # It closes when the fetch is answered that it has sent beyond the last record.
            arguments += [
                "--command-property" if self._numbers >= (4,) else "--consumer-property",
                "fetch.max.wait.ms=10",
            ]
        else:
            settings = Path(self._files.name) / "consumer.properties"
            settings.write_text(
                f"group.id={topic}\nconsumer.timeout.ms={_CONSOLE_WAIT_MS}\nfetch.wait.max.ms=10\nrefresh.leader.backoff.ms=10\n"
            )
            arguments += ["--zookeeper", self.tree, "--from-beginning", "--consumer.config", settings]
        said = self._tools.run(
            "kafka-console-consumer", *arguments, *(word for setting in shown for word in (flag, setting))
        )
        output = said.output.encode(errors="surrogateescape")
        rows = [_of_console(text, with_times, with_headers) for text in output.split(_AFTER_RECORD.encode())[:-1]]
        if (0, 10) <= self._numbers < (2,):
            self._counted += len(rows)  # it counts in a variable of the JVM's
        return Read(rows, None if len(rows) == count else _first_error(said))


def _of_console(text: bytes, with_time: bool, with_headers: bool) -> Row:
    *front, key, value = text.split(_AFTER_KEY.encode())
    timestamp_ms: int | None = None
    headers: list[tuple[str, bytes]] | None = None
    if with_time:
        stamp = front.pop(0).decode()
        timestamp_ms = -1 if stamp == "NO_TIMESTAMP" else int(stamp.removeprefix("CreateTime:"))
    if with_headers:
        shown = front.pop(0).decode()
        headers = (
            []
            if shown == "NO_HEADERS"
            else [(pair.split(":")[0], pair.split(":")[1].encode()) for pair in shown.split(",")]
        )
    return Row(key, value, timestamp_ms, headers)


def _first_error(said: Outcome) -> str:
    return (
        "\n".join(line for line in said.errors.splitlines() if re.search(r"Exception|Error|ERROR|WARN", line))
        or f"nothing said, exit code {said.code}"
    )


#: What some clients cannot write.
NULL_KEYS, NULL_VALUES, BYTES, TIMES, HEADERS = "null keys", "null values", "bytes", "times", "headers"
_EVERYTHING = frozenset({NULL_KEYS, NULL_VALUES, BYTES, TIMES, HEADERS})
_LINES = frozenset({NULL_KEYS})


@dataclass(frozen=True)
class Client:
    """A client of the matrix. `form` is that of the messages that it writes and reads: 0 before Kafka 0.10, 1 before
    0.11, then 2."""

    name: str
    start: Callable[[], Talker | Kcat | Console]
    form: int = 2
    codecs: tuple[str, ...] = CODECS
    writes: frozenset[str] = _EVERYTHING
    shows_times: bool = True
    shows_headers: bool = True
    shows_null: bool = True
    reads: bool = True
    #: What it says of a batch in zstd, if it does not know that: a pattern.
    without_zstd: str | None = None

    def rows(self, topic: str, now_ms: int) -> list[Row]:
        """What it writes to a topic, the same each time."""
        random = Random(topic)
        headers = [("from", self.name.encode()), ("empty", b"")] if HEADERS in self.writes and self.form == 2 else []
        pairs: list[tuple[bytes | None, bytes | None]] = [
            (b"key 0", b"value 0"),
            (b"key 1", b""),
            ("klíč".encode(), "žluťoučký kůň".encode()),
            (b"big", "".join(random.choices("abcdefghijklmnop", k=1000)).encode() * 100),
            (b"topic", topic.encode()),
        ]
        if BYTES in self.writes:
            pairs += [(bytes(range(256)), random.randbytes(1000) * 100), (b"", b"after an empty key")]
        if NULL_VALUES in self.writes:
            pairs += [(b"deleted", None)]
        if NULL_KEYS in self.writes:
            pairs += [(None, b"without a key"), (None, b"")]
        times = TIMES in self.writes and self.form > 0
        return [
            Row(key, value, now_ms - 1000 * len(pairs) + 7 * index if times else None, headers)
            for index, (key, value) in enumerate(pairs)
        ]


def _talker(command: Callable[..., list[str]], *arguments: str, **options: object) -> Callable[[], Talker]:
    return lambda: Talker(partial(command, *arguments), options)


CLIENTS = (
    Client("jesenska", _talker(python_client, "jesenska_client")),
    Client("confluent-kafka", _talker(python_client, "confluent_client")),
    Client("aiokafka", _talker(python_client, "aiokafka_client")),
    Client("kcat", Kcat, writes=frozenset({HEADERS})),
    Client("kafka-python", _talker(python_client, "kafka_python_client")),
    Client("kafka-python-2.0", _talker(python_client, "kafka_python_client", "kafka-python-2.0")),
    Client(
        "kafka-python-1.4",
        _talker(python_client, "kafka_python_client", "kafka-python-1.4"),
        codecs=OLD_CODECS,
        without_zstd="'checker'",
    ),
    Client(
        "kafka-python-1.4-as-0.10",
        _talker(python_client, "kafka_python_client", "kafka-python-1.4", api_version=[0, 10]),
        form=1,
        codecs=OLD_CODECS,
        without_zstd="Unknown error fetching data",
    ),
    Client(
        "kafka-python-1.4-as-0.9",
        _talker(python_client, "kafka_python_client", "kafka-python-1.4", api_version=[0, 9]),
        form=0,
        codecs=OLD_CODECS,
        shows_times=False,
        without_zstd="Unknown error fetching data",
    ),
    Client("franz-go", _talker(go_client)),
    Client("kafkajs", _talker(node_client)),
    Client(
        "console-0.8.2.2",
        partial(Console, "0.8.2.2", "--new-producer"),
        form=0,
        codecs=OLD_CODECS,
        writes=_LINES,
        shows_null=False,
        shows_times=False,
        shows_headers=False,
        without_zstd="kafka.common.UnknownException",
    ),
    Client(
        "console-0.8.2.2-old-producer",
        partial(Console, "0.8.2.2"),
        form=0,
        codecs=OLD_CODECS,
        writes=_LINES,
        reads=False,
    ),
    Client(
        "console-0.10.2.2",
        partial(Console, "0.10.2.2"),
        form=1,
        codecs=OLD_CODECS,
        writes=_LINES,
        shows_null=False,
        shows_headers=False,
        without_zstd="Unexpected error code: 76",
    ),
    Client(
        "console-0.10.2.2-old-producer",
        partial(Console, "0.10.2.2", "--old-producer"),
        form=1,
        codecs=OLD_CODECS,
        writes=_LINES,
        reads=False,
    ),
    Client(
        "console-1.0.2",
        partial(Console, "1.0.2"),
        codecs=OLD_CODECS,
        writes=_LINES,
        shows_null=False,
        shows_headers=False,
        without_zstd="Unknown compression type id: 4",
    ),
    Client("console-3.9.1", partial(Console, "3.9.1"), writes=_LINES, shows_null=False),
    Client("console-4.3.1", partial(Console, "4.3.1"), writes=_LINES, shows_null=False),
)

READERS = tuple(client for client in CLIENTS if client.reads)
WRITTEN = tuple((client, codec) for client in CLIENTS for codec in client.codecs)


def topic_of(writer: Client, codec: str) -> str:
    return f"{writer.name}.{codec}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000
