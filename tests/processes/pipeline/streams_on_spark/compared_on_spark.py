"""One description on Spark, in memory, and in the test driver."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.processes.pipeline.streams_on_spark.known_differences import (
    ATTRIBUTES,
    CLOCK,
    Difference,
    Facts,
    asks_for_time,
    has_attributes,
    is_by_key,
    unexplained,
)
from tests.processes.pipeline.streams_on_spark.micro_batches import KeptTasks, as_it_was, outcome
from tests.processes.pipeline.streams_on_spark.on_spark import HowToRun, OnSpark, with_own_topics
from tests.units.pipeline.streams.comparison import differences
from tests.units.pipeline.streams.interpreted import outcome as outcome_of_driver
from tests.units.pipeline.streams.topology_spec import Json

#: The compared parts of a run on Spark. It reports the number of dropped records only in its log.
PARTS = frozenset(("error", "describe", "output", "seen", "stores"))


def partitions_for(description: Json, wanted: int) -> int:
    """The possible number of partitions of the topics. Records of one key that come from several tasks have no
    order."""
    try:
        facts = Facts.of(description)
    except Exception:  # it is one that cannot be built
        return 1
    return wanted if facts.sub_topologies == 1 and not facts.feeds_itself and is_by_key(description) else 1


def unexplained_on_spark(runner: OnSpark, description: Json, how: HowToRun, titles: set[str]) -> Iterator[Difference]:
    """Yields the unknown differences between Spark and the kept tasks for the same micro-batches, and between those
    and the test driver. Adds the known differences that occurred to `titles`."""
    own = with_own_topics(description)
    ours, script = runner.outcome(own, how)
    expected = outcome_of_driver(own)
    if "build" in (ours.get("error", {}).get("when"), expected.get("error", {}).get("when")):
        yield from differences(expected, ours, parts=frozenset(("error",)))
        return
    transactions = how.guarantee == "exactly_once_v2"
    same = outcome(
        own, as_it_was(script), [KeptTasks()], partitions=how.partitions, chance=Random(0), transactions=transactions
    )
    if "error" in same:
        same["error"] = {**same["error"], "at": -1}
    for topic in {happening["topic"] for happening in own["input"] if "topic" in happening}:
        same["output"].pop(topic, None)  # records of a topic that the input also writes to
        ours["output"].pop(topic, None)
        expected["output"].pop(topic, None)
    met: set[str] = set()
    between = list(differences(_sorted(same, how.partitions), _sorted(ours, how.partitions), parts=PARTS))
    if between and (has_attributes(own) or asks_for_time(own, "wall clock")):
        met.add(ATTRIBUTES if has_attributes(own) else CLOCK)
        between = list(_without_clock(same, ours))
    yield from between
    if "error" not in same:
        yield from unexplained(own, expected, same, how.partitions, met)
    titles.update(met)


def _sorted(outcome: Json, partitions: int) -> Json:
    """Sorts stores by their keys, since each partition has an order of its own. With several partitions it also sorts
    the records without a key, which may be in any of them."""
    found = {
        **outcome,
        "stores": {name: sorted(content, key=str) for name, content in outcome.get("stores", {}).items()},
    }
    if partitions > 1 and "output" in outcome:
        found["output"] = {
            topic: [record for record in records if record[0] is not None]
            + sorted((record for record in records if record[0] is None), key=str)
            for topic, records in outcome["output"].items()
        }
    return found


def _without_clock(expected: Json, ours: Json) -> Iterator[Difference]:
    """Yields the differences that do not depend on the clock. Ticks, and the values that a punctuation sends, depend
    on it."""
    if ("error" in expected) != ("error" in ours):
        yield "error", expected.get("error"), ours.get("error")
    for topic, records in expected["output"].items():
        one, other = (
            {str(record[0]) for record in some if record[0] != "tick"} for some in (records, ours["output"][topic])
        )
        if not one <= other:
            yield f"output {topic}", sorted(one), sorted(other)
