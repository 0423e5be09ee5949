"""Converts lines of text to records, for kafka-console-producer. The input is cut into lines, and each line into
headers, key and value.

A line ends with \\n, \\r or \\r\\n. The properties parse.headers and parse.key determine its fields:

    h1:v1,h2:v2 <TAB> key <TAB> value        headers.separator `,`, headers.key.separator `:`, headers.delimiter and
                                             key.separator <TAB>
    key <TAB> value
    h1:v1,h2:v2 <TAB> value
    value

If null.marker is set, a field that equals it is null. With ignore.error=true, a line in which a separator is missing
is accepted, and the missing fields are left out. The bytes are sent unchanged: unlike in Kafka's tool, bytes that are
not UTF-8 are not replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jesenska.base.errors import JesenskaError

_DEFAULTS = {
    "parse.key": "false",
    "parse.headers": "false",
    "ignore.error": "false",
    "key.separator": "\t",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "null.marker": "",
}
#: The names of all properties that control how lines are parsed.
PROPERTIES = tuple(_DEFAULTS)
#: Pairs of properties that must have different values. key.separator may equal headers.delimiter.
_DIFFERENT = (
    ("headers.delimiter", "headers.separator"),
    ("headers.delimiter", "headers.key.separator"),
    ("headers.separator", "headers.key.separator"),
    ("null.marker", "key.separator"),
    ("null.marker", "headers.delimiter"),
    ("null.marker", "headers.separator"),
    ("null.marker", "headers.key.separator"),
)

Headers = tuple[tuple[str, bytes | None], ...]


class ParsedLine(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers


class LineParser:
    """Splits a line into headers, key and value. Raises JesenskaError if a separator is missing, or if properties
    contradict each other."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        settings = _DEFAULTS | dict(properties)
        self.unknown = sorted(set(properties) - set(_DEFAULTS) - {"topic"})
        self.parse_key = settings["parse.key"].strip().lower() == "true"
        self.parse_headers = settings["parse.headers"].strip().lower() == "true"
        self.ignore_error = settings["ignore.error"].strip().lower() == "true"
        self.key_separator = settings["key.separator"].encode()
        self.headers_delimiter = settings["headers.delimiter"].encode()
        self.headers_separator = settings["headers.separator"].encode()
        self.headers_key_separator = settings["headers.key.separator"].encode()
        self.null_marker = settings["null.marker"].encode() if "null.marker" in properties else None
        for one, other in _DIFFERENT:
            if settings[one] == settings[other]:
                raise JesenskaError(f"{one} and {other} may not be equal.")
        for name in ("key.separator", "headers.delimiter", "headers.separator", "headers.key.separator"):
            if not settings[name]:
                raise JesenskaError(f"{name} is empty: write at least one character.")

    @property
    def plain(self) -> bool:
        """True if every line is only a value, without headers or key."""
        return not (self.parse_key or self.parse_headers or self.null_marker is not None)

    def parse(self, line: bytes, number: int) -> ParsedLine:
        headers: Headers = ()
        key: bytes | None = None
        start = 0
        if self.parse_headers:
            end = self._find(line, self.headers_delimiter, start, "headers delimiter", number)
            if end >= 0:
                headers = self._headers(line[:end], number)
                start = end + len(self.headers_delimiter)
        if self.parse_key:
            end = self._find(line, self.key_separator, start, "key separator", number)
            if end >= 0:
                key = self._or_null(line[start:end])
                start = end + len(self.key_separator)
        return ParsedLine(key, self._or_null(line[start:]), headers)

    def _find(self, line: bytes, separator: bytes, start: int, what: str, number: int) -> int:
        end = line.find(separator, start)
        if end < 0 and not self.ignore_error:
            raise JesenskaError(
                f"No {what} found on line number {number}: '{_shown(line)}'; with ignore.error=true such a line is "
                f"sent without."
            )
        return end

    def _or_null(self, field: bytes) -> bytes | None:
        return None if field == self.null_marker else field

    def _headers(self, text: bytes, number: int) -> Headers:
        if text == self.null_marker:
            return ()
        found: list[tuple[str, bytes | None]] = []
        for pair in text.split(self.headers_separator):
            name, separator, value = pair.partition(self.headers_key_separator)
            if not separator and not self.ignore_error:
                raise JesenskaError(f"No header key separator found in pair '{_shown(pair)}' on line number {number}.")
            if name == self.null_marker:
                raise JesenskaError(
                    f"Header keys should not be equal to the null marker '{_shown(name)}' as they can't be null "
                    f"(line number {number})."
                )
            found.append((name.decode(errors="replace"), self._or_null(value) if separator else None))
        return tuple(found)


def _shown(text: bytes) -> str:
    shown = text[:200].decode(errors="replace")
    return shown + "..." if len(text) > 200 else shown


class LineSplitter:
    """Splits a stream of bytes into lines. A line longer than `max_bytes` is dropped; None is returned in place of the
    line."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._tail = b""
        self._after_return = False
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """Returns the lines that end within this piece of the stream."""
        if self._after_return and data[:1] == b"\n":
            data = data[1:]
        if not data:
            return []
        self._after_return = data.endswith(b"\r")
        lines: list[bytes | None] = []
        if self._skipping:
            rest = data.splitlines(keepends=True)
            if len(rest) == 1 and not data.endswith((b"\n", b"\r")):
                return []
            self._skipping = False
            lines.append(None)
            data = data[len(rest[0]) :]
        elif self._tail:
            data = self._tail + data
            self._tail = b""
        lines += data.splitlines()
        if data and not data.endswith((b"\n", b"\r")):
            tail = lines.pop()
            assert tail is not None
            if len(tail) > self._max_bytes:
                self._skipping = True
            else:
                self._tail = tail
        # A line that is completely within one piece is at most as long as the piece.
        if len(data) > self._max_bytes:
            lines = [None if line is not None and len(line) > self._max_bytes else line for line in lines]
        return lines

    def finish(self) -> list[bytes | None]:
        """Returns a list with the bytes after the last end of a line, as the last line. Returns an empty list if there
        are no such bytes."""
        if self._skipping:
            return [None]
        tail, self._tail = self._tail, b""
        return [tail] if tail else []
