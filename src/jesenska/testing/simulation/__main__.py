"""The command: many seeds, or the trace of one; and how often each state of a broker met each fault."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from jesenska.testing.simulation.coverage import Cell, as_json, as_table
from jesenska.testing.simulation.schedule import simulation


def outcome_of(seed: int, tree_apart: bool, brokers: int) -> tuple[str | None, Counter[Cell]]:
    """Why a seed fails, None where it does not; and what has met what."""
    failure = None
    with simulation(seed, tree_apart=tree_apart, brokers=brokers) as one:
        try:
            one.run()
        except Exception as error:
            failure = f"seed {seed} fails at {one.world.now:.3f} s: {type(error).__name__}: {error}"
        return failure, one.coverage.counts


def show(seed: int, tree_apart: bool, brokers: int) -> int:
    """Prints what happens under a seed."""
    with simulation(seed, tree_apart=tree_apart, brokers=brokers) as one:
        failure = None
        try:
            one.run()
        except Exception as error:
            failure = error
        print("\n".join(one.world.trace))
        if failure is not None:
            print(f"{type(failure).__name__}: {failure}")
    return 1 if failure is not None else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m jesenska.testing.simulation", description="Runs brokers and clients on a clock that does not wait, with faults.", allow_abbrev=False
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="The first seed (default: 1).")
    parser.add_argument("--schedules", type=int, default=200, metavar="K", help="How many seeds (default: 200).")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="P", help="At a time (default: one for each core).")
    parser.add_argument("--trace", type=int, metavar="SEED", help="Print what happens under one seed.")
    parser.add_argument("--tree-apart", action="store_true", help="The tree is a program of its own, with faults of its own.")
    parser.add_argument("--brokers", type=int, default=1, metavar="N", help="Brokers that share such a tree (default: 1).")
    parser.add_argument("--coverage", action="store_true", help="Print how often each state of a broker met each fault (with several brokers).")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="What the outcome is printed as (default: text).")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is part of what happens.
        os.execve(sys.executable, [sys.executable, "-m", "jesenska.testing.simulation", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606
    # What has been imported stays: it is not looked through for garbage again and again.
    gc.collect()
    gc.freeze()
    if options.trace is not None:
        return show(options.trace, options.tree_apart, options.brokers)
    failures: list[str] = []
    counts: Counter[Cell] = Counter()
    with ProcessPoolExecutor(options.processes) as pool:
        seeds = range(options.seed, options.seed + options.schedules)
        for failure, met in pool.map(partial(outcome_of, tree_apart=options.tree_apart, brokers=options.brokers), seeds):
            counts.update(met)
            if failure is not None:
                failures.append(failure)
                if options.output == "text":
                    print(failure, flush=True)
    if options.output == "json":
        outcome: dict[str, object] = {"seeds": options.schedules, "failures": failures}
        print(json.dumps(outcome | ({"coverage": as_json(counts)} if options.coverage else {}), indent=2))
    elif options.coverage:
        print(as_table(counts))
    print(f"{options.schedules - len(failures)} of {options.schedules} seeds pass", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
