"""Keeps the finished rows of a benchmark if a later one fails: they are printed, and the failures after them."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager


class Unfinished:
    """The failures so far."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._failed: list[str] = []

    @contextmanager
    def part(self, what: str) -> Iterator[None]:
        """A part of the work: an error ends this part and is noted. SystemExit with an exit code ends the program."""
        try:
            yield
        except SystemExit as error:
            if error.code is None or isinstance(error.code, int):
                raise
            self._note(what, str(error.code))
        except Exception as error:
            traceback.print_exc()
            self._note(what, f"{type(error).__name__}: {error}")

    def _note(self, what: str, reason: str) -> None:
        self._failed.append(f"{what}: {reason}")
        print(f"      {reason}", file=sys.stderr, flush=True)

    def exit_code(self) -> int:
        """Prints the failures; returns 1 if there are any."""
        for line in self._failed:
            print(f"{self._program}: {line}", file=sys.stderr)
        return 1 if self._failed else 0
