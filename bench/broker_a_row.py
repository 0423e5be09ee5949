"""Benchmarks of a broker of jesenska's beside Apache Kafka's that give each row a new broker on an empty directory."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from bench.brokers import KAFKA, Apache, Broker, Jesenska
from bench.figures import Figures
from bench.machine import end_in_order
from bench.needs import Need, kafka, name_of_program, require
from bench.options import add_broker_options, chosen_rows, needs_of_profile, only_lists, parser_of, show, turns
from bench.unfinished import Unfinished


class RowRun(NamedTuple):
    """A row on one side, in one round."""

    row: str
    broker: Broker
    #: The directory of the broker's data.
    place: Path
    scale: float
    figures: Figures


def run_rows(
    description: str,
    rows: Iterable[str],
    settings: Callable[[Path], Mapping[str, str]],
    work: Callable[[RowRun], None],
    *,
    release: str = KAFKA,
    needs: Callable[[str], Iterable[Need]] = lambda row: (),
) -> int:
    """Takes the options from the command line, has `work` done for each row in each round, and prints the figures;
    returns the exit code. `settings` are the brokers', by the place of their data; `needs` are a row's, besides the
    brokers'."""
    parser: argparse.ArgumentParser = parser_of(description, ("jesenska", "kafka"), rounds=3)
    add_broker_options(parser)
    options = parser.parse_args()
    end_in_order()
    chosen = chosen_rows(options, rows)
    if only_lists(options, chosen):
        return 0
    program, sides_needs = name_of_program(), kafka(release) if "kafka" in options.sides.split(",") else ()
    require(program, [*sides_needs, *(need for row in chosen for need in needs(row)), *needs_of_profile(options)])
    unfinished = Unfinished(program)
    names = {"jesenska": Jesenska.name, "kafka": Apache.name}
    sides = {names[side]: Figures() for side in options.sides.split(",")}
    for row, name in turns(options, chosen, sides):
        with unfinished.part(f"{row} ({name})"), tempfile.TemporaryDirectory(dir=options.dir) as directory:
            place = Path(directory).resolve()
            given = settings(place)
            broker: Broker = (
                Apache(place, given, release)
                if name == Apache.name
                else Jesenska(place, given, options.profile, options.profiles)
            )
            broker.start()
            try:
                work(RowRun(row, broker, place, options.scale, sides[name]))
            finally:
                broker.stop()
    show(sides, options, f"Apache Kafka {release}", f", scale {options.scale:g}")
    return unfinished.exit_code()
