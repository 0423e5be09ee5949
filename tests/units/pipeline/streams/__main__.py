"""Runs topologies with Apache Kafka Streams and with jesenska's test driver.

    python -m tests.units.pipeline.streams "random 17"  one description, its input, Kafka's outcome, the differences
    python -m tests.units.pipeline.streams --count 1000       the names of those that differ, and the parts
    python -m tests.units.pipeline.streams --list             all names of written descriptions

Ends with 1 if there is an unknown difference."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections import Counter

from tests.peers.streams_judge import StreamsJudge
from tests.units.pipeline.streams.comparison import beside, compared, differences, written
from tests.units.pipeline.streams.generated_topologies import named, topologies
from tests.units.pipeline.streams.known_differences import known
from tests.units.pipeline.streams.topology_spec import Json


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.units.pipeline.streams",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="what a description is called; @FILE reads one from a file of JSON")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=300, help="how many, where no name is given")
    parser.add_argument("--release", default="3.9.1", help="of Apache Kafka Streams")
    parser.add_argument("--theirs", action="store_true", help="only what Kafka gives")
    parser.add_argument("--list", action="store_true", help="print names, run nothing")
    parser.add_argument("--json", action="store_true", help="print descriptions as JSON, run nothing")
    options = parser.parse_args()
    chosen = [_read(name, options.seed) for name in options.names] or topologies(options.count, options.seed)
    if options.list or options.json:
        print("\n".join(json.dumps(description) if options.json else description["name"] for description in chosen))
        return 0
    logging.disable(logging.WARNING)  # records are dropped by the dozen
    differing: Counter[str] = Counter()
    known_ones: Counter[str] = Counter()
    with StreamsJudge(options.release) as judge:
        for description in chosen:
            expected = judge.outcome(description)
            ours = None if options.theirs else _ours(description)
            found = (
                []
                if ours is None
                else list(
                    differences(expected, ours, in_one_order="on_disk" not in description, parts=compared(description))
                )
            )
            titles = {
                item.title for item in (known(description, difference) for difference in found) if item is not None
            }
            known_ones.update(titles)
            unknown = [difference for difference in found if known(description, difference) is None]
            differing.update({name.split()[0] for name, _, _ in unknown})
            if options.names:
                print(written(description))
                print("# Kafka gives")
                print(_shown(expected))
                print(
                    "\n".join(beside(*difference) for difference in found) or "# nothing differs" * (ours is not None)
                )
                print("\n".join(f"# known: {title}" for title in sorted(titles)))
            elif unknown:
                print(f"{description['name']}: {', '.join(name for name, _, _ in unknown)}")
    if not options.names:
        print(
            f"{len(chosen)} topologies; known differences: {dict(known_ones) or 'none'}; others: "
            f"{dict(differing) or 'none'}"
        )
    return 1 if differing else 0


def _read(name: str, seed: int) -> Json:
    if name.startswith("@"):
        with open(name[1:], encoding="utf-8") as file:
            description: Json = json.load(file)
            return description
    return named(name, seed)


def _ours(description: Json) -> Json:
    from tests.units.pipeline.streams.interpreted import outcome

    return outcome(description)


def _shown(outcome: Json) -> str:
    lines = [outcome.get("describe", "").rstrip()]
    for part in ("output", "seen", "stores"):
        for name, records in outcome.get(part, {}).items():
            lines += [f"{part} {name}", *(f"    {json.dumps(record)}" for record in records)]
    lines += [f"{part} {outcome[part]}" for part in ("dropped", "error") if part in outcome]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
