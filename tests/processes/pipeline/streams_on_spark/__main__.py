"""Generated topologies on Spark, compared with long-lived tasks and with the test driver, which gives the results of
Apache Kafka Streams (`python -m tests.units.pipeline.streams`).

    python -m tests.processes.pipeline.streams_on_spark --count 300       on Spark, against a broker of its own
    python -m tests.processes.pipeline.streams_on_spark "random 17"       one of them
    python -m tests.processes.pipeline.streams_on_spark --in-memory --count 5000
                                                                          the tasks' own functions, without Spark

Each topology is run in one of several ways, in turn: in one or in three rounds, with small micro-batches, with several
partitions where that leaves an order, at least once and exactly once; every second one with expressions in place of
functions. Ends with 1 where there is an unknown difference."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.processes.pipeline.streams_on_spark.known_differences import (
    ATTRIBUTES,
    Difference,
    only_ticks_differ,
    unexplained,
)
from tests.processes.pipeline.streams_on_spark.micro_batches import (
    DifferentSidesError,
    KeptTasks,
    StateFiles,
    at_random,
    in_rounds,
    outcome,
    record_by_record,
)
from tests.processes.pipeline.streams_on_spark.on_spark import HowToRun
from tests.units.pipeline.streams.comparison import beside, written
from tests.units.pipeline.streams.generated_topologies import named, topologies
from tests.units.pipeline.streams.interpreted import outcome as outcome_of_driver
from tests.units.pipeline.streams.topology_spec import Json

WAYS = (
    HowToRun(),
    HowToRun(rounds=3, guarantee="exactly_once_v2"),
    HowToRun(max_offsets=7),
    HowToRun(rounds=2, partitions=2),
)
IN_MEMORY = (
    (record_by_record, 1),
    (in_rounds(1), 1),
    (in_rounds(3), 1),
    (at_random, 1),
    (in_rounds(2), 3),
    (at_random, 2),
)

Compare = Callable[[int, Json, set[str]], list[Difference]]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.processes.pipeline.streams_on_spark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="what a description is called")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=300, help="how many, where no name is given")
    parser.add_argument("--first", type=int, default=0, help="leave out those before")
    parser.add_argument("--in-memory", action="store_true", help="without Spark")
    parser.add_argument("--every-way", action="store_true", help="each description in all ways")
    options = parser.parse_args()
    logging.getLogger("jesenska").addHandler(logging.NullHandler())
    logging.getLogger("jesenska").propagate = False
    chosen = [named(name, options.seed) for name in options.names] or topologies(options.count, options.seed)[
        options.first :
    ]
    titles: Counter[str] = Counter()
    differing = compared = 0
    began = time.monotonic()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory()))
        compare = in_memory(directory) if options.in_memory else on_spark(directory, stack)
        ways = len(IN_MEMORY if options.in_memory else WAYS)
        for number, description in enumerate(chosen, options.first):
            for way in range(ways) if options.every_way or options.names else [number % ways]:
                met: set[str] = set()
                found = compare(way, {**description, "expressions": (number + way) % 2 == 1}, met)
                compared += 1
                titles.update(met)
                differing += bool(found)
                if found:
                    print(f"{description['name']} (way {way}): {', '.join(name for name, _, _ in found)}", flush=True)
                    print("".join(f"    {one} and {other}\n" for name, one, other in found if name == "error"), end="")
                    if options.names:
                        print(written(description))
                        print("\n".join(beside(*difference) for difference in found))
            if not options.in_memory and number % 25 == 24:
                print(
                    f"{number + 1} of {options.first + len(chosen)} after {time.monotonic() - began:.0f} s", flush=True
                )
    print(
        f"{compared} comparisons of {len(chosen)} topologies; known differences: {dict(titles) or 'none'}; others: "
        f"{differing}"
    )
    return 1 if differing else 0


def in_memory(directory: Path) -> Compare:
    def compare(way: int, description: Json, titles: set[str]) -> list[Difference]:
        cuts, partitions = IN_MEMORY[way]
        chance = Random(f"{way} {description['name']}")
        with TemporaryDirectory(dir=directory) as place:
            try:
                ours = outcome(
                    description,
                    cuts,
                    [StateFiles(Path(place), chance), KeptTasks()],
                    partitions=partitions,
                    chance=chance,
                )
            except DifferentSidesError as error:
                if only_ticks_differ(description, error.outputs):
                    titles.add(ATTRIBUTES)
                    return []
                return [("the two sides", "", str(error))]
        return list(unexplained(description, outcome_of_driver(description), ours, partitions, titles))

    return compare


def on_spark(directory: Path, stack: ExitStack) -> Compare:
    from jesenska.pipeline.spark.session import SHORT_RUN, session
    from jesenska.testing import BrokerProcess
    from tests.processes.pipeline.conftest import Topics
    from tests.processes.pipeline.streams_on_spark.compared_on_spark import partitions_for, unexplained_on_spark
    from tests.processes.pipeline.streams_on_spark.on_spark import OnSpark

    broker = stack.enter_context(BrokerProcess(directory / "broker"))
    spark = session("topologies", config={**SHORT_RUN, "spark.sql.shuffle.partitions": "2", "spark.log.level": "OFF"})
    stack.callback(spark.stop)
    topics = Topics(broker.bootstrap)
    stack.callback(topics.close)
    runner = OnSpark(spark, topics, directory)

    def compare(way: int, description: Json, titles: set[str]) -> list[Difference]:
        how = WAYS[way]
        how = replace(how, partitions=partitions_for(description, how.partitions))
        return list(unexplained_on_spark(runner, description, how, titles))

    return compare


if __name__ == "__main__":
    sys.exit(main())
