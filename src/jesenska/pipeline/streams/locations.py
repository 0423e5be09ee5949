"""Finds the line of the user's program that called the API. Errors and the plan name this line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from jesenska.pipeline.streams.errors import TopologyError

_PACKAGE = str(Path(__file__).with_name("_"))[:-1]  # the folder, with the separator after it


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


def here() -> Location:
    """Returns the line of the user's program that called the API: in the call stack, the innermost line outside of
    this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)


def refused(sentence: str) -> TopologyError:
    """Returns a TopologyError whose message is `sentence` after the line of the user's program that called the API."""
    return TopologyError(f"{here()}: {sentence}")
