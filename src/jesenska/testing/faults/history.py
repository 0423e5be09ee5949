"""A history: a file with the operations of Kafka clients, one JSON line for each. Any program in any language can
write a history. The kinds of lines:

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

`client` names a producer or a consumer. `time_ns` is the time at which the client wrote the line: its monotonic clock
in nanoseconds. A `send` line is written before the record is sent, so a record without this line was never sent.
`value` is a text for the record's value. Records with the same text are treated as the same record, so each send needs
its own text. `partition` is -1 in a `send` line without a chosen partition. `offset` is -1 in an `acknowledged` line
without an offset, and in a `found` line for a group that has committed nothing. Other fields are ignored.

A transactional producer writes `transactional` before its first send. It writes `ending`, with every record of the
transaction, before the request that ends the transaction, and `ended` after a response without an error. A
read_committed consumer writes `stable`.

A process that is killed may leave an incomplete last line. Readers ignore this line, and it is removed when another
writer continues the file. A file has one writer at a time; `read_history` merges several files by time. Clients on one
machine share its monotonic clock. The times of clients on several machines cannot be compared; the checkers'
docstrings say what this means for them."""

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

#: The largest number of bytes in one line, with the line end.
LINE_MAX_BYTES = 1024 * 1024
#: The largest number of bytes of a record's value that is written into a line unchanged. A longer value is shortened.
VALUE_MAX_BYTES = 200
#: The largest number of records in one line. Even with the longest values and all characters escaped, the line is
#: shorter than LINE_MAX_BYTES.
_RECORDS_PER_LINE = 400
_BEGINNING_BYTES = 40
_TAIL_BYTES = 64 * 1024


class HistoryError(Exception):
    """The error when a history cannot be read or written. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a client."""

    time_ns: int
    client: str


@dataclass(frozen=True, slots=True)
class ProducerBegan(Operation):
    """The settings of a producer, written before its first send. Without this line, Kafka's defaults since 3.0 are
    assumed: acks=all (-1), idempotent, five requests in flight."""

    acks: int
    idempotent: bool
    max_in_flight: int


@dataclass(frozen=True, slots=True)
class SendBegan(Operation):
    """A record is about to be sent. `number` identifies the send in the later line with its result. The numbers of one
    client increase."""

    number: int
    topic: str
    partition: int
    value: str | None


@dataclass(frozen=True, slots=True)
class SendAcknowledged(Operation):
    """The broker has acknowledged the record. If a send has neither this line nor a certain failure, its record may
    have been written or not, or may be written later."""

    number: int
    topic: str
    partition: int
    offset: int
    value: str | None


@dataclass(frozen=True, slots=True)
class SendFailed(Operation):
    """The producer has given up sending the record. `certain` means that consumers certainly cannot read the record:
    it was never sent, or the broker refused every attempt. `certain` is also True if the record's transaction was
    aborted and all consumers use read_committed. Otherwise it is not known if the record was written."""

    number: int
    certain: bool


@dataclass(frozen=True, slots=True)
class Assigned(Operation):
    """The partitions of a consumer after an assignment. In the partitions of `reset`, the consumer's position is set
    to the given offset (None: not known). In the other partitions the consumer continues at its earlier position."""

    partitions: tuple[TopicPartition, ...]
    reset: tuple[tuple[str, int, int | None], ...]


@dataclass(frozen=True, slots=True)
class Sought(Operation):
    """A consumer's program has called seek, so the consumer continues at this offset."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Polled(Operation):
    """A consumer got records of a partition: (offset, value) in the order in which it got them."""

    topic: str
    partition: int
    records: tuple[tuple[int, str | None], ...]


@dataclass(frozen=True, slots=True)
class CommitBegan(Operation):
    """An offset commit is about to be sent. `back` means that the client intentionally commits a lower offset than
    before."""

    number: int
    group: str
    topic: str
    partition: int
    offset: int
    back: bool


@dataclass(frozen=True, slots=True)
class CommitAcknowledged(Operation):
    """The group coordinator has responded to an offset commit without an error."""

    number: int
    group: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class CommittedFound(Operation):
    """A client has fetched a committed offset from the group coordinator. `began_ns` is the time of the request."""

    began_ns: int
    group: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class FullReadBegan(Operation):
    """A client begins to read these partitions from their beginning. Its polls until FullReadEnded belong to this full
    read."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FullReadEnded(Operation):
    """A client has read these ranges completely: (topic, partition, first existing offset, end offset)."""

    ranges: tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class TransactionalBegan(Operation):
    """All sends of this producer are in transactions. A record may be read only if an EndBegan line says that its
    transaction will be committed."""


@dataclass(frozen=True, slots=True)
class EndBegan(Operation):
    """A transaction is about to be committed or aborted. `records` are all records of the transaction: (topic,
    partition, value). Without an EndAcknowledged line, the transaction may be committed or aborted, even later, but
    only as a whole."""

    number: int
    commits: bool
    records: tuple[tuple[str, int, str | None], ...]


@dataclass(frozen=True, slots=True)
class EndAcknowledged(Operation):
    """The request to end a transaction got a response without an error."""

    number: int
    commits: bool


@dataclass(frozen=True, slots=True)
class StableEnd(Operation):
    """A read_committed consumer has read all records below these last stable offsets: (topic, partition, offset)."""

    ends: tuple[tuple[str, int, int], ...]


# --- lines -----------------------------------------------------------------------------------------------------------


class _WrongError(Exception):
    """The error of a field with a wrong value. The message says which value the field should have."""


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
    """Yields the rows of a list of lists. Each item is checked by the function for its column."""
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
#: The fields of each kind of line, in the order in which the class of the line has them.
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
    """Returns the line of an operation, with the line end. Raises HistoryError if it has more than LINE_MAX_BYTES."""
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
    """Returns the operation in a line. Raises HistoryError for an invalid line."""
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
    raise HistoryError(f"This is not an operation: {reason}.")


def value_text(value: bytes | None) -> str | None:
    """Returns the text that represents a record's value in a history. A value that is text of at most VALUE_MAX_BYTES
    is returned unchanged. Otherwise the text consists of the beginning of the value and its SHA-256 digest."""
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
    """Returns the operations of all files, sorted by time. Operations of one client keep the order of the file. Raises
    HistoryError, with the file and the line, for an invalid line. An incomplete last line is left out."""
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
    """Writes a history file, or continues an existing file. Several threads may use it.

    Each operation is passed to the operating system before `write` returns. So no written operation is lost if this
    process is killed."""

    def __init__(self, path: Path | str, *, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """Opens and locks the file. Raises HistoryError if another writer has locked it."""
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
        """Truncates the file after its last complete line. Returns the new size in bytes."""
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
        """Returns the present time for an operation, in nanoseconds."""
        return self._now_ns()

    def write(self, operation: Operation) -> None:
        """Appends an operation. Raises OSError if the write fails; then nothing is appended."""
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
        """Returns the writer for one client. Clients of one history must have different names."""
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
    """Writes the operations of one client. There is a method for each kind of operation; the time of the call becomes
    the time of the operation. Values are the bytes of record values. An object must not be used by several threads at
    once."""

    def __init__(self, writer: Sink, name: str) -> None:
        self.name = name
        self._writer = writer
        self._numbers = 0

    def _write(self, made: Callable[..., Operation], *fields: object) -> None:
        self._writer.write(made(self._writer.now_ns(), self.name, *fields))

    def now_ns(self) -> int:
        """Returns the present time, as operations contain it, in nanoseconds."""
        return self._writer.now_ns()

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers - 1

    # Operations of a producer

    def producer(self, *, acks: int = -1, idempotent: bool = True, max_in_flight: int = 5) -> None:
        """Writes the producer's settings, before its first send."""
        self._write(ProducerBegan, acks, idempotent, max_in_flight)

    def sending(self, topic: str, partition: int, value: bytes | None) -> int:
        """Writes that a record is about to be sent. Returns the number of the send, which the line with the result
        also contains."""
        number = self._number()
        self._write(SendBegan, number, topic, partition, value_text(value))
        return number

    def acknowledged(self, number: int, topic: str, partition: int, offset: int, value: bytes | None) -> None:
        self._write(SendAcknowledged, number, topic, partition, offset, value_text(value))

    def failed(self, number: int, *, certain: bool) -> None:
        self._write(SendFailed, number, certain)

    # Operations of a transactional producer

    def transactional(self) -> None:
        """Writes that all sends of this producer are in transactions."""
        self._write(TransactionalBegan)

    def ending(self, records: Iterable[tuple[str, int, bytes | None]], *, commits: bool) -> int:
        """Writes that a transaction with these records is about to end. Returns the number to pass to `ended`."""
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

    # Operations of a consumer

    def assigned(self, partitions: Iterable[TopicPartition], reset: Mapping[TopicPartition, int | None]) -> None:
        """Writes all partitions that the consumer has now. `reset` contains the partitions in which its position was
        set, with the new offsets."""
        self._write(
            Assigned, tuple(partitions), tuple((key.topic, key.partition, offset) for key, offset in reset.items())
        )

    def sought(self, key: TopicPartition, offset: int) -> None:
        self._write(Sought, key.topic, key.partition, offset)

    def polled(self, key: TopicPartition, records: Sequence[tuple[int, bytes | None]]) -> None:
        """Writes the records that the consumer got: (offset, value), in order."""
        shown = [(offset, value_text(value)) for offset, value in records]
        for first in range(0, len(shown), _RECORDS_PER_LINE):
            self._write(Polled, key.topic, key.partition, tuple(shown[first : first + _RECORDS_PER_LINE]))

    def committing(self, group: str, key: TopicPartition, offset: int, *, back: bool = False) -> int:
        """Writes that an offset commit is about to be sent. Returns the number to pass to `committed`."""
        number = self._number()
        self._write(CommitBegan, number, group, key.topic, key.partition, offset, back)
        return number

    def committed(self, number: int, group: str, key: TopicPartition, offset: int) -> None:
        self._write(CommitAcknowledged, number, group, key.topic, key.partition, offset)

    def found(self, began_ns: int, group: str, key: TopicPartition, offset: int) -> None:
        """Writes that a committed offset was fetched; -1 means that the group has committed nothing. `began_ns` is the
        time of the request."""
        self._write(CommittedFound, began_ns, group, key.topic, key.partition, offset)

    # Operations of a full read

    def full_read(self, partitions: Iterable[TopicPartition]) -> None:
        """Writes that the client begins to read these partitions from their beginning."""
        self._write(FullReadBegan, tuple(partitions))

    def full_read_ended(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Writes that the client has read each partition completely: from the first offset up to, not including, the
        second offset."""
        self._write(
            FullReadEnded, tuple((key.topic, key.partition, start, end) for key, (start, end) in ranges.items())
        )

    def stable(self, ends: Mapping[TopicPartition, int]) -> None:
        """Writes that the client has got every committed record below these last stable offsets."""
        self._write(StableEnd, tuple((key.topic, key.partition, offset) for key, offset in ends.items()))
