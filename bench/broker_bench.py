"""jesenska against Apache Kafka, in turn on the same machine, driven by the same clients.

    python -m bench.broker_bench                                   every row, 3 rounds; about an hour
    python -m bench.broker_bench --list                            the names of the rows
    python -m bench.broker_bench --rows '6 partitions,*lz4*'       rows of that name, or with these words or patterns
                                                                   in it
    python -m bench.broker_bench --rounds 1 --scale 0.01           a look
    python -m bench.broker_bench --sides jesenska --rows '32 conn' --profile cprofile
    python -m bench.broker_bench --sides jesenska,before --before ../before
                                                                   against another checkout of the project, set up
    python -m bench.broker_bench --beside --repeat 4 --rows consume ...
                                                                   a row at a time on either broker, four times a round

In each round, each stage of rows (`Row.stage`) runs on one broker and then on the other, each freshly started; the one
that begins changes from round to round. `bench/figures.py` explains the figures; the rows are in `bench/throughput.py`
(Kafka's perf tools and kcat), `bench/small_requests.py` (bare sockets, and Kafka's end-to-end latency tool) and
`bench/many_partitions.py`.

For small differences: a shared machine may be faster or slower some minutes later, by a tenth. With `--beside` both
brokers are up, and each row runs on one and then on the other; the one that begins changes from row to row, too. The
memory must have room for the chosen rows' data, twice. A row that lasts two seconds differs by a fifth from one
reading to the next on the same broker: `--repeat` gives it more of them.

Broker CPU seconds are those of the broker's process during the row, user and system, all threads: the steadiest figure
on a noisy machine.

Needs Java, Maven and kcat; rows that are not chosen need nothing.
"""

from __future__ import annotations

import argparse
import fnmatch
import resource
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path

from bench import many_partitions, small_requests, throughput
from bench.brokers import KAFKA, Apache, Broker, Jesenska, build_of, python_of
from bench.figures import Figures, resident_mb
from bench.machine import end_in_order, settle
from bench.needs import kafka, require
from bench.options import add_broker_options, needs_of_profile, only_lists, parser_of, show
from bench.rows import Row, Run
from bench.unfinished import Unfinished

_BEFORE = "before"
_SETTINGS = {"num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


def _idle_after_start(run: Run, row: str) -> None:
    run.figures.add(row, "resident MB", resident_mb(run.broker.pid))


ROWS = [
    Row("start to ready", "load", lambda run, row: run.figures.add(row, "seconds", run.ready_seconds)),
    Row("idle after start", "load", _idle_after_start),
    *throughput.ROWS,
    *small_requests.ROWS,
    *many_partitions.ROWS,
]


def chosen(words: str) -> list[Row]:
    """Rows that are named by one of the words, separated by commas, or else have it in their name or match it as a
    pattern; all rows for an empty text."""
    names = {row.name for row in ROWS}
    separator = ";" if ";" in words or words in names else ","
    wanted = [word.strip() for word in words.split(separator) if word.strip()]

    def is_meant(name: str, word: str) -> bool:
        return name == word if word in names else word in name or fnmatch.fnmatch(name, word)

    return [row for row in ROWS if not wanted or any(is_meant(row.name, word) for word in wanted)]


@contextmanager
def _started(side: str, place: Path, options: argparse.Namespace, figures: Figures) -> Iterator[Run]:
    """The broker of this side on a new directory, which is stopped at the end."""
    broker: Broker
    if side == Apache.name:
        broker = Apache(place, _SETTINGS)
    else:
        broker = Jesenska(
            place, _SETTINGS, options.profile, options.profiles, options.before if side == _BEFORE else None
        )
    settle(options.scale)
    ready_seconds = broker.start()
    try:
        yield Run(broker, figures, options.scale, ready_seconds)
    finally:
        broker.stop()


def _stage(
    up: Sequence[str],
    rows: Sequence[Row],
    options: argparse.Namespace,
    sides: Mapping[str, Figures],
    unfinished: Unfinished,
) -> None:
    """Each row on the brokers of these sides, which are up at the same time; the one that begins changes from one
    reading to the next."""
    readings = [row for row in rows for _ in range(options.repeat)]
    with tempfile.TemporaryDirectory(dir=options.dir) as directory, ExitStack() as stack:
        runs = [(side, stack.enter_context(_started(side, Path(directory, side), options, sides[side]))) for side in up]
        for number, row in enumerate(readings):
            for side, run in runs if number % 2 == 0 else reversed(runs):
                print(f"    {row.name}: {side}", file=sys.stderr, flush=True)
                # One failed row must not lose hours of other rows.
                with unfinished.part(f"{row.name} ({side})"):
                    row.do(run, row.name)


def main() -> int:
    parser = parser_of(
        "Benchmarks jesenska against Apache Kafka.",
        ("jesenska", "kafka"),
        rounds=3,
        rows="words or patterns of names, separated by commas (or by semicolons, if one has a comma in it)",
    )
    add_broker_options(parser)
    parser.add_argument(
        "--before", type=Path, metavar="DIR", help="another checkout of the project, for the side `before`"
    )
    parser.add_argument(
        "--beside",
        action="store_true",
        help="the brokers of a stage are up at the same time, and each row runs on one after the other",
    )
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="each row runs so many times in a round")
    options = parser.parse_args()
    end_in_order()
    if (_BEFORE in options.sides.split(",")) != (options.before is not None):
        parser.error("the side before and --before DIR belong together")
    rows = chosen(options.rows)
    if only_lists(options, [row.name for row in rows]):
        return 0
    sides_needs = kafka(KAFKA) if "kafka" in options.sides.split(",") else ()
    require("broker_bench", [*sides_needs, *(need for row in rows for need in row.needs), *needs_of_profile(options)])
    if options.before is not None:
        if not python_of(options.before).exists():
            parser.error(f"{options.before} has no .venv: set it up first (script/setup test)")
        ours, theirs = build_of(Path(sys.executable)), build_of(python_of(options.before))
        if ours != theirs:
            parser.error(
                f"jesenska runs on {ours}, and before on {theirs}: set both up with the same interpreter (PYTHON=... "
                f"script/setup test)"
            )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    names = {"jesenska": Jesenska.name, "kafka": Apache.name, _BEFORE: _BEFORE}
    unfinished = Unfinished("broker_bench")
    sides = {names[side]: Figures() for side in options.sides.split(",")}
    for number in range(options.rounds):
        in_turn = list(sides) if number % 2 == 0 else list(reversed(sides))
        together = [in_turn] if options.beside else [[name] for name in in_turn]
        for stage, grouped in groupby(rows, lambda row: row.stage):
            members = list(grouped)
            for up in together:
                print(f"round {number + 1}, {stage}: {' beside '.join(up)}", file=sys.stderr, flush=True)
                with unfinished.part(f"{stage} ({' beside '.join(up)})"):
                    _stage(up, members, options, sides, unfinished)
    show(
        sides,
        options,
        f"against {list(sides)[-1]}" if options.before else f"Apache Kafka {KAFKA}",
        f", scale {options.scale:g}",
    )
    return unfinished.exit_code()


if __name__ == "__main__":
    sys.exit(main())
