"""A history: the operations of clients, one a line, in JSON. Any program in any language can write one.

    {"what":"producer","time_ns":1,"client":"p","acks":-1,"idempotent":true,"max_in_flight":5}
    {"what":"send","time_ns":2,"client":"p","number":0,"topic":"t","partition":0,"value":"p-0"}
    {"what":"acknowledged","time_ns":3,"client":"p","number":0,"topic":"t","partition":0,"offset":17,"value":"p-0"}
    {"what":"failed","time_ns":4,"client":"p","number":1,"certain":false}
    {"what":"assigned","time_ns":5,"client":"c","partitions":[["t",0],["t",1]],"reset":[["t",0,17],["t",1,null]]}
    {"what":"sought","time_ns":6,"client":"c","topic":"t","partition":0,"offset":17}
    {"what":"polled","time_ns":7,"client":"c","topic":"t","partition":0,"records":[[17,"p-0"],[18,null]]}
    {"what":"commit","time_ns":8,"client":"c","number":0,"group":"g","topic":"t","partition":0,"offset":18,
     "back":false}
    {"what":"committed","time_ns":9,"client":"c","number":0,"group":"g","topic":"t","partition":0,"offset":18}
    {"what":"found","time_ns":11,"client":"c","began_ns":10,"group":"g","topic":"t","partition":0,"offset":18}
    {"what":"full read","time_ns":12,"client":"r","partitions":[["t",0]]}
    {"what":"full read ended","time_ns":13,"client":"r","ranges":[["t",0,0,19]]}
    {"what":"transactional","time_ns":14,"client":"w"}
    {"what":"ending","time_ns":15,"client":"w","number":0,"commits":true,"records":[["t",0,"w-0"]]}
    {"what":"ended","time_ns":16,"client":"w","number":0,"commits":true}
    {"what":"stable","time_ns":17,"client":"r","ends":[["t",0,19]]}

`client` names a producer or a consumer; `time_ns` is its monotonic clock in nanoseconds, at which it wrote the line. A
`send` is written before the record leaves, so that a record whose line is missing was never sent. `value` is a text
for the record's value; two records with the same text are the same, so each send needs its own. `partition` is -1 in a
`send` without a chosen partition; `offset` is -1 in an `acknowledged` without an offset and in a `found` of a group
that has committed nothing. Other fields are ignored.

A transactional producer writes `transactional` before its first send. `ending` is written before the request for the
transaction's end, with every record that the transaction has sent; `ended` after an answer without an error. `stable`
is written by a reader of committed records.

A process that is killed leaves a line that is cut off, as the last one: it is ignored, and cut off when another writer
goes on with the file. Each file has one writer at a time; `read_history` merges several by their times. Clients on one
machine share its monotonic clock; the times of clients on several machines cannot be compared, and the checkers say
what that means for them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Protocol

from jesenska.base.identifiers import TopicPartition

#: Bytes of one line, with its end.
LINE_MAX_BYTES = 1024 * 1024
#: The most bytes of a record's value that are in a line as they are.
VALUE_MAX_BYTES = 200
#: The most records of one line: with the longest values, each character escaped, they stay below LINE_MAX_BYTES.
_RECORDS_PER_LINE = 400
_BEGINNING_BYTES = 40
_TAIL_BYTES = 64 * 1024


class HistoryError(Exception):
    """A history that cannot be read or written; one sentence."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a client."""

    time_ns: int
    client: str


@dataclass(frozen=True, slots=True)
class ProducerBegan(Operation):
    """The settings of a producer, before its first send. A client without this line has Kafka's defaults since 3.0:
    acks=all (-1), idempotent, five requests in flight."""

    acks: int
    idempotent: bool
    max_in_flight: int


@dataclass(frozen=True, slots=True)
class SendBegan(Operation):
    """A record is about to be sent. `number` identifies its outcome; numbers of one client go up."""

    number: int
    topic: str
    partition: int
    value: str | None


@dataclass(frozen=True, slots=True)
class SendAcknowledged(Operation):
    """The broker has acknowledged the record. A send without this line and without a certain failure may or may not
    have been written, also later."""

    number: int
    topic: str
    partition: int
    offset: int
    value: str | None


@dataclass(frozen=True, slots=True)
class SendFailed(Operation):
    """The producer has given the record up. `certain`: it never left, or was refused each time, or its transaction was
    aborted and all readers read committed records; otherwise it is not known if it was written."""

    number: int
    certain: bool


@dataclass(frozen=True, slots=True)
class Assigned(Operation):
    """A consumer has these partitions from now on. It begins those in `reset` again, at that offset (None: unknown);
    it continues the other ones from its position."""

    partitions: tuple[TopicPartition, ...]
    reset: tuple[tuple[str, int, int | None], ...]


@dataclass(frozen=True, slots=True)
class Sought(Operation):
    """A consumer goes on at that offset because its program wants it so."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Polled(Operation):
    """A consumer got records of a partition: (offset, value) in the order in which they came."""

    topic: str
    partition: int
    records: tuple[tuple[int, str | None], ...]


@dataclass(frozen=True, slots=True)
class CommitBegan(Operation):
    """A commit is about to be sent. `back`: it is meant to be lower than what is committed."""

    number: int
    group: str
    topic: str
    partition: int
    offset: int
    back: bool


@dataclass(frozen=True, slots=True)
class CommitAcknowledged(Operation):
    """The coordinator has answered a commit without an error."""

    number: int
    group: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class CommittedFound(Operation):
    """The coordinator's answer about a group's committed offset, to a request at `began_ns`."""

    began_ns: int
    group: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class FullReadBegan(Operation):
    """A client begins to read these partitions from their beginning; its polls up to FullReadEnded belong to it."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FullReadEnded(Operation):
    """A client has read (topic, partition, from the first existing offset, up to below this one)."""

    ranges: tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class TransactionalBegan(Operation):
    """A producer whose sends are all in transactions. Its records count only if EndBegan says that their transaction
    is to be committed."""


@dataclass(frozen=True, slots=True)
class EndBegan(Operation):
    """A transaction is about to be committed or aborted; `records` are all that it has sent: (topic, partition,
    value). Without EndAcknowledged it may be committed or aborted, also later, but as a whole."""

    number: int
    commits: bool
    records: tuple[tuple[str, int, str | None], ...]


@dataclass(frozen=True, slots=True)
class EndAcknowledged(Operation):
    """The end of a transaction was answered without an error."""

    number: int
    commits: bool


@dataclass(frozen=True, slots=True)
class StableEnd(Operation):
    """A reader of committed records got these last stable offsets, (topic, partition, offset), and every record below
    them."""

    ends: tuple[tuple[str, int, int], ...]


# --- lines -----------------------------------------------------------------------------------------------------------


class _WrongError(Exception):
    """The error of a field."""


def _integer(found: Any) -> int:
    if type(found) is not int:
        raise _WrongError("a whole number")
    return found


def _text(found: Any) -> str:
    if type(found) is not str:
        raise _WrongError("a text")
    return found


def _flag(found: Any) -> bool:
    if type(found) is not bool:
        raise _WrongError("true or false")
    return found


def _value(found: Any) -> str | None:
    if found is not None and type(found) is not str:
        raise _WrongError("a text or null")
    return found


def _rows(found: Any, shape: str, *columns: Callable[[Any], Any]) -> Iterator[tuple[Any, ...]]:
    """The rows of a list of lists."""
    if type(found) is not list:
        raise _WrongError(f"a list of {shape}")
    for row in found:
        if type(row) is not list or len(row) != len(columns):
            raise _WrongError(f"a list of {shape}")
        try:
            yield tuple([column(item) for column, item in zip(columns, row)])
        except _WrongError:
            raise _WrongError(f"a list of {shape}") from None


def _partitions(found: Any) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(*row) for row in _rows(found, "[topic, partition]", _text, _integer))


def _position(found: Any) -> int | None:
    return None if found is None else _integer(found)


def _positions(found: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple(_rows(found, "[topic, partition, offset or null]", _text, _integer, _position))


def _records(found: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple(_rows(found, "[offset, value]", _integer, _value))


def _ranges(found: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple(_rows(found, "[topic, partition, offset, offset]", _text, _integer, _integer, _integer))


def _places(found: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple(_rows(found, "[topic, partition, value]", _text, _integer, _value))


def _ends(found: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple(_rows(found, "[topic, partition, offset]", _text, _integer, _integer))


_PLACE: Mapping[str, Callable[[Any], Any]] = {"topic": _text, "partition": _integer}
_COMMIT: Mapping[str, Callable[[Any], Any]] = {"group": _text, **_PLACE, "offset": _integer}
#: The fields of each kind of line, in the order of its class.
_SHAPES: Mapping[str, tuple[type[Operation], Mapping[str, Callable[[Any], Any]]]] = {
    "producer": (ProducerBegan, {"acks": _integer, "idempotent": _flag, "max_in_flight": _integer}),
    "send": (SendBegan, {"number": _integer, **_PLACE, "value": _value}),
    "acknowledged": (SendAcknowledged, {"number": _integer, **_PLACE, "offset": _integer, "value": _value}),
    "failed": (SendFailed, {"number": _integer, "certain": _flag}),
    "assigned": (Assigned, {"partitions": _partitions, "reset": _positions}),
    "sought": (Sought, {**_PLACE, "offset": _integer}),
    "polled": (Polled, {**_PLACE, "records": _records}),
    "commit": (CommitBegan, {"number": _integer, **_COMMIT, "back": _flag}),
    "committed": (CommitAcknowledged, {"number": _integer, **_COMMIT}),
    "found": (CommittedFound, {"began_ns": _integer, **_COMMIT}),
    "full read": (FullReadBegan, {"partitions": _partitions}),
    "full read ended": (FullReadEnded, {"ranges": _ranges}),
    "transactional": (TransactionalBegan, {}),
    "ending": (EndBegan, {"number": _integer, "commits": _flag, "records": _places}),
    "ended": (EndAcknowledged, {"number": _integer, "commits": _flag}),
    "stable": (StableEnd, {"ends": _ends}),
}
_READERS = {
    what: (made, tuple({"time_ns": _integer, "client": _text, **fields}.items()))
    for what, (made, fields) in _SHAPES.items()
}
_NAMES = {made: what for what, (made, _) in _SHAPES.items()}


def to_line(operation: Operation) -> bytes:
    """Returns the line of an operation, with its end; HistoryError for one of more than LINE_MAX_BYTES."""
    what = _NAMES[type(operation)]
    found = {"what": what, **{name: getattr(operation, name) for name, _ in _READERS[what][1]}}
    line = json.dumps(found, separators=(",", ":")).encode() + b"\n"
    if len(line) > LINE_MAX_BYTES:
        raise HistoryError(
            f"An operation {what!r} takes {len(line)} bytes, more than a line of a history may have "
            f"({LINE_MAX_BYTES}): write it in several."
        )
    return line


def from_line(line: bytes) -> Operation:
    """Returns the operation of a line; HistoryError for an invalid line."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        _refuse("it is not JSON")
    if type(found) is not dict:
        _refuse("it is not an object")
    what = found.get("what")
    shape = _READERS.get(what) if type(what) is str else None
    if shape is None:
        _refuse(f'its "what" is {what!r}, and not one of {", ".join(_READERS)}')
    made, fields = shape
    name = ""
    try:
        values = []
        for name, read in fields:
            values.append(read(found[name]))
    except KeyError:
        _refuse(f"{name!r} is missing")
    except _WrongError as error:
        _refuse(f"{name!r} is not {error}")
    return made(*values)


def _refuse(reason: str) -> NoReturn:
    raise HistoryError(f"This is no operation: {reason}.")


def value_text(value: bytes | None) -> str | None:
    """Returns the text of a record's value in a history: the value itself if it is text of at most VALUE_MAX_BYTES,
    else its beginning and its SHA-256."""
    if value is None:
        return None
    if len(value) <= VALUE_MAX_BYTES:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return (
        f"{value[:_BEGINNING_BYTES].decode(errors='replace')} ({len(value)} bytes, SHA-256 "
        f"{hashlib.sha256(value).hexdigest()})"
    )


# --- reading ---------------------------------------------------------------------------------------------------------


def read_history(paths: Iterable[Path | str]) -> list[Operation]:
    """Returns the operations of all files, in the order of their times; the operations of one client keep their order.
    HistoryError with the file and the line for an invalid line; a last line that is cut off is left out."""
    operations = [operation for path in paths for operation in _read_file(Path(path))]
    operations.sort(key=lambda operation: operation.time_ns)
    return operations


def _read_file(path: Path) -> Iterator[Operation]:
    number = 0
    try:
        with path.open("rb") as file:
            while line := file.readline(LINE_MAX_BYTES + 1):
                number += 1
                if len(line) > LINE_MAX_BYTES:
                    raise HistoryError(f"The line has more than {LINE_MAX_BYTES} bytes.")
                try:
                    operation = from_line(line)
                except HistoryError:
                    if line.endswith(b"\n"):
                        raise
                    return  # its writer was killed
                yield operation
    except HistoryError as error:
        raise HistoryError(f"{path}, line {number}: {error}") from None
    except OSError as error:
        raise HistoryError(
            f"{path} cannot be read ({error.strerror}): name a file that a history was written to."
        ) from error


# --- writing ---------------------------------------------------------------------------------------------------------


class HistoryWriter:
    """Writes a history, or goes on with one. Threads may share it.

    Each operation is handed to the system before `write` returns, so it outlives this process, even after a kill."""

    def __init__(self, path: Path | str, *, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """Locks the file; HistoryError if another writer has it."""
        self.path = Path(path)
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HistoryError(
                    f"{self.path} is being written by another: give each writer a file of its own."
                ) from None
            self._size_bytes = self._cut_torn_line()
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _cut_torn_line(self) -> int:
        """Cuts the file to the end of its last whole line, and returns that size in bytes."""
        size = os.fstat(self._descriptor).st_size
        end = size
        while end:
            begin = max(0, end - _TAIL_BYTES)
            at = os.pread(self._descriptor, end - begin, begin).rfind(b"\n")
            if at >= 0:
                end = begin + at + 1
                break
            end = begin
        if end != size:
            os.ftruncate(self._descriptor, end)
        return end

    def now_ns(self) -> int:
        """Returns the time of an operation now."""
        return self._now_ns()

    def write(self, operation: Operation) -> None:
        """Adds an operation; OSError, and nothing added, if the write fails."""
        line = to_line(operation)
        with self._lock:
            if self._descriptor < 0:
                raise HistoryError(f"{self.path} was closed.")
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except BaseException:
                os.ftruncate(self._descriptor, self._size_bytes)
                raise
            self._size_bytes += len(line)

    def client(self, name: str) -> ClientHistory:
        """Returns the writer of one client; clients of one history have different names."""
        return ClientHistory(self, name)

    def close(self) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1


class Sink(Protocol):
    """A writer of operations, with a clock."""

    def now_ns(self) -> int: ...

    def write(self, operation: Operation) -> None: ...


class ClientHistory:
    """One client's part of a history: a method for each operation, with the time of the call. Values are the records'
    own bytes. Use it on one thread at a time."""

    def __init__(self, writer: Sink, name: str) -> None:
        self.name = name
        self._writer = writer
        self._numbers = 0

    def _write(self, made: Callable[..., Operation], *fields: object) -> None:
        self._writer.write(made(self._writer.now_ns(), self.name, *fields))

    def now_ns(self) -> int:
        """Returns the time that the next operation would have."""
        return self._writer.now_ns()

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers - 1

    # A producer.

    def producer(self, *, acks: int = -1, idempotent: bool = True, max_in_flight: int = 5) -> None:
        """Its settings, before its first send."""
        self._write(ProducerBegan, acks, idempotent, max_in_flight)

    def sending(self, topic: str, partition: int, value: bytes | None) -> int:
        """Notes that a record is about to be sent; returns the number for its outcome."""
        number = self._number()
        self._write(SendBegan, number, topic, partition, value_text(value))
        return number

    def acknowledged(self, number: int, topic: str, partition: int, offset: int, value: bytes | None) -> None:
        self._write(SendAcknowledged, number, topic, partition, offset, value_text(value))

    def failed(self, number: int, *, certain: bool) -> None:
        self._write(SendFailed, number, certain)

    # A transactional producer.

    def transactional(self) -> None:
        """All its sends are in transactions."""
        self._write(TransactionalBegan)

    def ending(self, records: Iterable[tuple[str, int, bytes | None]], *, commits: bool) -> int:
        """Notes that a transaction that has sent these records is about to end; returns the number for its answer."""
        number = self._number()
        self._write(
            EndBegan,
            number,
            commits,
            tuple((topic, partition, value_text(value)) for topic, partition, value in records),
        )
        return number

    def ended(self, number: int, *, commits: bool) -> None:
        self._write(EndAcknowledged, number, commits)

    # A consumer.

    def assigned(self, partitions: Iterable[TopicPartition], reset: Mapping[TopicPartition, int | None]) -> None:
        """All partitions that it has now, and the offsets of those that it begins again."""
        self._write(
            Assigned, tuple(partitions), tuple((key.topic, key.partition, offset) for key, offset in reset.items())
        )

    def sought(self, key: TopicPartition, offset: int) -> None:
        self._write(Sought, key.topic, key.partition, offset)

    def polled(self, key: TopicPartition, records: Sequence[tuple[int, bytes | None]]) -> None:
        """(offset, value) in the order in which they came."""
        shown = [(offset, value_text(value)) for offset, value in records]
        for first in range(0, len(shown), _RECORDS_PER_LINE):
            self._write(Polled, key.topic, key.partition, tuple(shown[first : first + _RECORDS_PER_LINE]))

    def committing(self, group: str, key: TopicPartition, offset: int, *, back: bool = False) -> int:
        """Notes that a commit is about to be sent; returns the number for its answer."""
        number = self._number()
        self._write(CommitBegan, number, group, key.topic, key.partition, offset, back)
        return number

    def committed(self, number: int, group: str, key: TopicPartition, offset: int) -> None:
        self._write(CommitAcknowledged, number, group, key.topic, key.partition, offset)

    def found(self, began_ns: int, group: str, key: TopicPartition, offset: int) -> None:
        """The coordinator's committed offset (-1: nothing), asked at `began_ns`."""
        self._write(CommittedFound, began_ns, group, key.topic, key.partition, offset)

    # A reader of everything.

    def full_read(self, partitions: Iterable[TopicPartition]) -> None:
        """It begins to read these from their beginning."""
        self._write(FullReadBegan, tuple(partitions))

    def full_read_ended(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """It has read each from the first offset up to below the second."""
        self._write(
            FullReadEnded, tuple((key.topic, key.partition, start, end) for key, (start, end) in ranges.items())
        )

    def stable(self, ends: Mapping[TopicPartition, int]) -> None:
        """It got these last stable offsets, and every committed record below them."""
        self._write(StableEnd, tuple((key.topic, key.partition, offset) for key, offset in ends.items()))
