"""`jesenska` with cProfile at hand: SIGUSR2 starts a profile of the event loop's thread, the next one ends it and
writes it as text to $JESENSKA_PROFILE."""

from __future__ import annotations

import cProfile
import io
import os
import pstats
import signal
import sys
from pathlib import Path
from types import FrameType

from jesenska.cli.jesenska import main

_current: list[cProfile.Profile] = []


def turn(number: int, frame: FrameType | None) -> None:
    """The signal's handler."""
    if not _current:
        _current.append(cProfile.Profile())
        _current[0].enable()
        return
    profile = _current.pop()
    profile.disable()
    out = io.StringIO()
    statistics = pstats.Stats(profile, stream=out).strip_dirs()
    statistics.sort_stats("tottime").print_stats(60)
    statistics.sort_stats("cumulative").print_stats(40)
    target = Path(os.environ["JESENSKA_PROFILE"])
    partial = target.with_suffix(".partial")
    partial.write_text(out.getvalue())
    partial.rename(target)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, turn)
    sys.exit(main())
