"""Keeps a processor busy for moments, until its stdin is closed: `python -m tests.repeat.busy SEED`."""

from __future__ import annotations

import select
import sys
import time
from random import Random

#: How long it is busy and how long it rests, at most.
_BUSY_S, _REST_S = 0.5, 1.0


def main() -> None:
    chance = Random(sys.argv[1])
    while True:
        until = time.monotonic() + chance.uniform(0.0, _BUSY_S)
        while time.monotonic() < until:
            pass
        if select.select([sys.stdin], [], [], chance.uniform(0.0, _REST_S))[0]:
            return


if __name__ == "__main__":
    main()
