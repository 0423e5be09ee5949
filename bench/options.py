"""The common parts of the benchmarks of two sides: their options, and the output of their figures."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bench.figures import Figures, as_json, table
from bench.needs import PERF, Need


def parser_of(
    description: str, sides: Sequence[str], *, rounds: int, rows: str = "words in names, separated by semicolons"
) -> argparse.ArgumentParser:
    """The common parser. A benchmark adds its own options (`--scale` or `--seconds`, kinds of `--profile`)."""
    parser = argparse.ArgumentParser(description=description, epilog="The rows' names: --list")
    parser.add_argument("--rows", default="", help=rows)
    parser.add_argument("--list", action="store_true", help="print the names of the rows and end")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--sides", default=",".join(sides), help=f"{', '.join(sides)}, or both")
    parser.add_argument(
        "--profiles", type=Path, default=Path("profiles"), help="directory for the profiles, a text file for each row"
    )
    parser.add_argument("--output", choices=["table", "json"], default="table")
    parser.add_argument("--dir", help="where to keep the servers' data while it runs")
    return parser


def add_broker_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of benchmarks of brokers."""
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of the records, requests and partitions of each row"
    )
    parser.add_argument(
        "--profile",
        choices=["cprofile", "perf"],
        default="",
        help="profile jesenska in each row; figures are then worth nothing",
    )


def needs_of_profile(options: argparse.Namespace) -> tuple[Need, ...]:
    """The needs of the kind of `--profile`."""
    return (PERF,) if options.profile == "perf" else ()


def only_lists(options: argparse.Namespace, names: Sequence[str]) -> bool:
    """True if only names were requested, which are printed. Ends the program if no row's name matches. Makes the
    directory of profiles."""
    if options.list:
        print("\n".join(names))
        return True
    if not names:
        raise SystemExit(f"no row's name matches {options.rows!r}; --list names them")
    if options.profile:
        options.profiles.mkdir(parents=True, exist_ok=True)
    return False


def chosen_rows(options: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """The rows with one of the requested words in their names; all rows without words."""
    return [name for name in names if not options.rows or any(word.strip() in name for word in options.rows.split(";"))]


def turns(options: argparse.Namespace, rows: Sequence[str], sides: Mapping[str, Figures]) -> Iterator[tuple[str, str]]:
    """Each row and the side that has its turn, round by round; the sides take turns in being first."""
    for number in range(options.rounds):
        for row in rows:
            for side in sides if number % 2 == 0 else reversed(list(sides)):
                print(f"round {number + 1}, {row}: {side}", file=sys.stderr, flush=True)
                yield row, side


def show(sides: Mapping[str, Figures], options: argparse.Namespace, rival: str, amount: str) -> None:
    """Prints the figures; `amount` describes the size of each round."""
    heading = (
        f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {rival}, {os.cpu_count()} cores, "
        f"{options.rounds} rounds{amount}"
    )
    print(as_json(sides, heading) if options.output == "json" else table(sides, heading))
