"""What a benchmark needs of the machine. It is looked at before anything else is done, so that a program that is not
there is told in the first second and not after the first rows."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, NoReturn


class Need(NamedTuple):
    """`missing` says what is not there, as the beginning of a sentence, or gives None; `remedy` is how it comes."""

    missing: Callable[[], str | None]
    remedy: str


def _program(name: str, remedy: str) -> Need:
    return Need(lambda: None if shutil.which(name) else f"{name} is not on the PATH", remedy)


VALGRIND: Final = _program("valgrind", "install it (apt-get install valgrind)")


def require(program: str, needs: Iterable[Need]) -> None:
    """Ends the program with exit code 2 and a sentence for each need that is not met; returns if all are."""
    unmet = [f"{missing}: {need.remedy}." for need in dict.fromkeys(needs) if (missing := need.missing()) is not None]
    if unmet:
        refuse(program, *unmet)


def refuse(program: str, *sentences: str) -> NoReturn:
    """Ends the program with exit code 2, as argparse does for arguments that it does not understand."""
    for sentence in sentences:
        print(f"{program}: {sentence}", file=sys.stderr)
    raise SystemExit(2)
