"""The log of a server process: text lines for people or JSON for programs, on stderr or in a file.

    text    [2026-11-22 07:28:45,123] WARNING the connection ...
    json    {"time":"2026-11-22T07:28:45.123Z","level":"WARNING","logger":"jesenska.broker.server","message":"..."}

A file is opened again after it was renamed, so logrotate needs no signal. If a log record has an attribute
`once_a_minute`, lines with the same value of the attribute are written at most once a minute. (For example, with a
full disk every append fails.) The next line that is written contains the number of lines that were left out."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from jesenska.base.errors import JesenskaError

if TYPE_CHECKING:
    from logging.handlers import WatchedFileHandler

#: The name of the log record's attribute. It is set with `logger.error(..., extra={ONCE_A_MINUTE: value})`.
ONCE_A_MINUTE = "once_a_minute"
_MINUTE_SECONDS = 60.0
#: The largest number of values of `once_a_minute` that are remembered.
_REMEMBERED_MAX = 1000


def add_logging(parser: argparse.ArgumentParser, level: str) -> None:
    parser.add_argument(
        "--log-level",
        default=level,
        choices=["debug", "info", "warning", "error"],
        help=f"How much to log (default: {level}).",
    )
    parser.add_argument(
        "--log-format",
        default="text",
        choices=["text", "json"],
        help="Lines for people, or JSON for programs (default: text).",
    )
    parser.add_argument(
        "--log-file", metavar="FILE", help="Log into a file, which may be renamed meanwhile (default: stderr)."
    )


def configure_logging(options: argparse.Namespace) -> None:
    """Sets up logging with the options that `add_logging` has added. Raises JesenskaError if the log file cannot be
    written."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if options.log_file is not None:
        try:
            Path(options.log_file).parent.mkdir(parents=True, exist_ok=True)
            handler = _watched_file(options.log_file)
        except OSError as error:
            raise JesenskaError(
                f"The log file {options.log_file} cannot be written ({error.strerror}): name another with --log-file."
            ) from error
    handler.setFormatter(
        _Json() if options.log_format == "json" else logging.Formatter("[%(asctime)s] %(levelname)s %(message)s")
    )
    handler.addFilter(OnceAMinute(time.monotonic))
    logging.basicConfig(level=getattr(logging, options.log_level.upper()), handlers=[handler])


def _watched_file(path: str, errors: str | None = None) -> WatchedFileHandler:
    """Returns a log handler that opens its file again after the file was renamed. The handler's module is imported
    here because it imports pickle, and most servers log to stderr."""
    from logging.handlers import WatchedFileHandler

    return WatchedFileHandler(path, encoding="utf-8", errors=errors)


class LogFile:
    """A stream that writes to the file of `--log-file`, for the logs of other processes. If the file was renamed, it
    is opened again."""

    def __init__(self, path: str) -> None:
        self._handler = _watched_file(path, "backslashreplace")

    def write(self, text: str) -> None:
        self._handler.reopenIfNeeded()
        if self._handler.stream is not None:
            self._handler.stream.write(text)

    def flush(self) -> None:
        self._handler.flush()

    def close(self) -> None:
        self._handler.close()


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = {"time": at, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            fields["stack"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


class OnceAMinute(logging.Filter):
    """A log filter. A line with a value `once_a_minute` passes only if no line with the same value was written in the
    last minute."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self._monotonic = monotonic
        #: For each value of `once_a_minute`: the time at which a line was last written, and the number of lines that
        #: were left out since then.
        self._written: dict[object, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key = getattr(record, ONCE_A_MINUTE, None)
        if key is None:
            return True
        now = self._monotonic()
        at, left_out = self._written.get(key, (now - _MINUTE_SECONDS, 0))
        if now - at < _MINUTE_SECONDS:
            self._written[key] = at, left_out + 1
            return False
        if len(self._written) >= _REMEMBERED_MAX:
            self._written.clear()
        self._written[key] = now, 0
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} lines like this were left out)", ()
        return True
