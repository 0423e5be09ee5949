"""Runs the matrix of secured clients at this broker and at Apache Kafka, and prints a table of the outcomes.

    python -m tests.conformance.secured [--client NAME]... [--login NAME]... [--condition NAME]... [--side SIDE]...
                                        [--words]

Without options it runs every cell at both brokers, which takes 5 to 10 minutes. `--words` prints the clients' own
errors, too. The exit code is 1 if the brokers differ in more than `known.py`
lists.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.conformance.secured.cells import CLIENTS, CONDITIONS, LOGINS, Cell, cells
from tests.conformance.secured.known import reason_for
from tests.conformance.secured.matrix import SIDES, Outcomes, compare, files_for, outcomes


def _chosen(options: argparse.Namespace) -> list[Cell]:
    return [
        cell
        for cell in cells()
        if cell.client.name in (options.client or [client.name for client in CLIENTS])
        and cell.login in (options.login or LOGINS)
        and cell.condition in (options.condition or CONDITIONS)
    ]


def _text(steps: Mapping[str, str]) -> str:
    """The outcomes of a cell, shortly."""
    return "ok" if set(steps.values()) == {"ok"} else "; ".join(f"{name}: {found}" for name, found in steps.items())


def _print(found: Mapping[str, Outcomes], words: bool) -> None:
    for cell in next(iter(found.values())):
        texts = {side: _text(of_side[cell].steps) for side, of_side in found.items()}
        if len(set(texts.values())) == 1:
            print(f"{cell.id:40} {next(iter(texts.values()))}")
        else:
            ours, theirs = (found[side][cell].steps for side in SIDES)
            word = "DIFFERENT" if reason_for(cell, ours, theirs) is None else "known"
            print(f"{cell.id:40} {word}: " + " | ".join(f"{side}: {text}" for side, text in texts.items()))
        if words:
            for side, of_side in found.items():
                for step, text in of_side[cell].errors.items():
                    print(f"    {side}, {step}: {text!r}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.secured", description=__doc__)
    for name in ("client", "login", "condition", "side"):
        parser.add_argument(f"--{name}", action="append")
    parser.add_argument("--words", action="store_true")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which ends brokers and clients
    chosen = _chosen(options)
    sides = options.side or SIDES
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="secured-") as name,
        files_for(chosen, Path(name)) as files,
        ThreadPoolExecutor(len(sides)) as threads,
    ):
        found = dict(zip(sides, threads.map(lambda side: outcomes(side, chosen, files), sides), strict=True))
    print(f"{len(chosen)} cells at {len(sides)} brokers in {time.monotonic() - begun:.0f} s", flush=True)
    _print(found, options.words)
    if len(found) < 2:
        return 0
    different = compare(*(found[side] for side in SIDES))
    known = sum(found[SIDES[0]][cell].steps != found[SIDES[1]][cell].steps for cell in chosen) - len(different)
    print(f"{len(chosen)} cells, {len(different)} different, {known} differ as known.py says")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
