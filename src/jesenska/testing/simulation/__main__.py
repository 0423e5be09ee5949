"""The command `python -m jesenska.testing.simulation`. It runs many seeds, or prints the trace of one seed. It can
also count, for each fault and each state of a broker (such as leader), how often the fault hit a broker in this
state."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections import Counter

from jesenska.testing.simulation.many_seeds import outcomes_of, simulated
from jesenska.testing.simulation.moves import MOVING_BROKERS_MIN
from jesenska.testing.simulation.watches.coverage import Cell, as_json, as_table


def show(seed: int, tree_apart: bool, brokers: int, kind: str) -> int:
    """Runs one seed and prints its events. Returns the exit code: 1 if the seed fails."""
    with simulated(seed, tree_apart, brokers, kind) as one:
        failure = None
        try:
            one.run()
        except Exception as error:
            failure = error
        print("\n".join(one.world.trace))
        if failure is not None:
            print(f"{type(failure).__name__}: {failure}")
    return 1 if failure is not None else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jesenska.testing.simulation",
        description="Runs brokers and clients on a clock that does not wait, with faults.",
        allow_abbrev=False,
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="The first seed (default: 1).")
    parser.add_argument("--schedules", type=int, default=200, metavar="K", help="How many seeds (default: 200).")
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        metavar="P",
        help="At a time (default: one for each core).",
    )
    parser.add_argument("--trace", type=int, metavar="SEED", help="Print what happens under one seed.")
    parser.add_argument(
        "--tree-apart", action="store_true", help="The tree is a program of its own, with faults of its own."
    )
    parser.add_argument(
        "--brokers", type=int, default=1, metavar="N", help="Brokers that share such a tree (default: 1)."
    )
    clients = parser.add_mutually_exclusive_group()
    clients.add_argument(
        "--transactions",
        dest="kind",
        action="store_const",
        const="transactions",
        default="groups",
        help="Clients use transactions.",
    )
    clients.add_argument(
        "--micro-batches",
        dest="kind",
        action="store_const",
        const="micro-batches",
        help="Clients are queries that write exactly once.",
    )
    clients.add_argument(
        "--access",
        dest="kind",
        action="store_const",
        const="access",
        help="Clients log in, and their passwords and ACLs change.",
    )
    clients.add_argument(
        "--moves",
        dest="kind",
        action="store_const",
        const="moves",
        help="Partitions move to other brokers (with three brokers or more).",
    )
    parser.add_argument(
        "--coverage",
        action="store_true",
        help="Print how often each state of a broker met each fault (with several brokers).",
    )
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="What the outcome is printed as (default: text)."
    )
    return parser


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    if options.kind == "moves" and options.brokers < MOVING_BROKERS_MIN:
        parser.error(f"--moves needs --brokers {MOVING_BROKERS_MIN} or more.")
    logging.disable(logging.CRITICAL)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets affects the simulation. So the program is started again with a fixed PYTHONHASHSEED, so
        # that string hashes are the same in every run.
        os.execve(  # noqa: S606
            sys.executable,
            [sys.executable, "-m", "jesenska.testing.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    if options.trace is not None:
        return show(options.trace, options.tree_apart, options.brokers, options.kind)
    failures: dict[int, str] = {}
    counts: Counter[Cell] = Counter()
    seeds = range(options.seed, options.seed + options.schedules)
    for seed, failure, met in outcomes_of(seeds, options.tree_apart, options.brokers, options.processes, options.kind):
        counts.update(met)
        if failure is not None:
            failures[seed] = failure
            if options.output == "text":
                print(failure, flush=True)
    if options.output == "json":
        outcome: dict[str, object] = {
            "seeds": options.schedules,
            "failures": [failures[seed] for seed in sorted(failures)],
        }
        print(json.dumps(outcome | ({"coverage": as_json(counts)} if options.coverage else {}), indent=2))
    elif options.coverage:
        print(as_table(counts))
    print(f"{options.schedules - len(failures)} of {options.schedules} seeds pass", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
