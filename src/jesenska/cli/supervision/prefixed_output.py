"""Passes on the output of several processes, line by line with the name of the process in front. Sentences of the
supervisor are written between these lines.

    text    broker 1: [2026-11-22 07:28:45,123] WARNING the connection ...
    json    {"process":"broker 1","time":"2026-11-22T07:28:45.123Z","level":"WARNING", ...}

In JSON form, a line that is not an object becomes the message of an object.

A thread writes the output, because a stopped terminal (Ctrl-S), or a program that does not read the output, must not
block the event loop. While the thread is blocked, a process that prints waits when its pipe is full, as it would
without this module. If too many sentences of the supervisor wait, further sentences are dropped."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol

#: The longest piece of a line that is passed on at once, and the size of one read, in bytes.
_LINE_BYTES = 64 * 1024
#: The largest number of the supervisor's sentences that may wait for the thread.
_SENTENCES_MAX = 1000
#: The seconds for which `close` waits until the remaining output is read. It waits the same time until the output is
#: written.
_CLOSE_SECONDS = 1.0


class Stream(Protocol):
    """A stream to which lines are written."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class PrefixedOutput:
    """Passes lines on to two streams, by default stdout and stderr of this process."""

    def __init__(self, out: Stream | None = None, err: Stream | None = None, *, as_json: bool = False) -> None:
        self.out: Stream = sys.stdout if out is None else out
        self.err: Stream = sys.stderr if err is None else err
        self._as_json = as_json
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="jesenska-passed-on")
        self._following: set[asyncio.Task[None]] = set()
        self._sentences = 0
        self._is_closed = False

    def say(self, sentence: str) -> None:
        """Writes a sentence of the supervisor to stderr. The thread writes the sentence; this call does not wait."""
        if self._as_json:
            at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            sentence = json.dumps(
                {"process": "supervisor", "time": at, "level": "WARNING", "message": sentence}, ensure_ascii=False
            )
        self._write_soon(self.err, f"{sentence}\n")

    def announce(self, text: str) -> None:
        """Writes a text unchanged to stdout. The thread writes the text; this call does not wait."""
        self._write_soon(self.out, text)

    def _write_soon(self, stream: Stream, text: str) -> None:
        if self._is_closed or self._sentences >= _SENTENCES_MAX:
            return
        self._sentences += 1
        asyncio.get_running_loop().run_in_executor(self._writer, _write, stream, text).add_done_callback(self._said)

    def _said(self, _: asyncio.Future[None]) -> None:
        self._sentences -= 1

    def follow(
        self, name: str, parts: Sequence[tuple[asyncio.StreamReader, Stream]], done: Callable[[], object]
    ) -> None:
        """Passes on the output of the process `name` from each reader to its stream. Calls `done` at the end of the
        output, or when output is no longer passed on. Bytes that are not UTF-8 become U+FFFD."""
        task = asyncio.get_running_loop().create_task(self._follow(name, parts))
        self._following.add(task)

        def ended(_: asyncio.Task[None]) -> None:
            self._following.discard(task)
            done()

        task.add_done_callback(ended)

    async def _follow(self, name: str, parts: Sequence[tuple[asyncio.StreamReader, Stream]]) -> None:
        await asyncio.gather(*(self._pass_on(name, reader, stream) for reader, stream in parts))

    async def _pass_on(self, name: str, reader: asyncio.StreamReader, stream: Stream) -> None:
        loop = asyncio.get_running_loop()
        kept = b""
        while data := await reader.read(_LINE_BYTES):
            *whole, kept = (kept + data).split(b"\n")
            lines = [piece for line in whole for piece in _pieces(line)]
            if len(kept) >= _LINE_BYTES:
                *begin, kept = _pieces(kept)
                lines += begin
            if lines:
                await loop.run_in_executor(self._writer, _write, stream, self._named(lines, name))
        if kept:
            await loop.run_in_executor(self._writer, _write, stream, self._named([kept], name))

    def _named(self, lines: list[bytes], name: str) -> str:
        form = _json_line if self._as_json else _text_line
        return "".join(form(name, line.decode(errors="replace")) for line in lines)

    async def close(self) -> None:
        """Waits a short time until everything is written. After that no output is passed on."""
        self._is_closed = True
        following = set(self._following)
        if following:
            await asyncio.wait(following, timeout=_CLOSE_SECONDS)
            for task in following:
                task.cancel()
            await asyncio.wait(following)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await asyncio.get_running_loop().run_in_executor(self._writer, _nothing)
        self._writer.shutdown(wait=False, cancel_futures=True)


def _pieces(line: bytes) -> list[bytes]:
    """Splits a line into pieces of _LINE_BYTES bytes; the last piece may be shorter. Returns at least one piece."""
    return [line[begin : begin + _LINE_BYTES] for begin in range(0, max(len(line), 1), _LINE_BYTES)]


def _text_line(name: str, line: str) -> str:
    return f"{name}: {line}\n"


def _json_line(name: str, line: str) -> str:
    process = json.dumps(name, ensure_ascii=False)
    if line.startswith('{"') and line.endswith("}"):
        return f'{{"process":{process},{line[1:]}\n'
    return f'{{"process":{process},"message":{json.dumps(line, ensure_ascii=False)}}}\n'


def _write(stream: Stream, text: str) -> None:
    with suppress(OSError, ValueError):  # its reader has ended, or it is closed
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode("ascii", "backslashreplace").decode())
        stream.flush()


def _nothing() -> None: ...
