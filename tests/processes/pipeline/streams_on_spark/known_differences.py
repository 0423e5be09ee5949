"""The cases in which a topology that runs micro-batch by micro-batch may differ from the test driver, which gives the
results of Kafka Streams for the same input. Each is a row of the table in docs/streams-on-spark.md, and each is
checked: a difference counts as known only if its description is true.

All of them come after the comparison of micro_batches.py: a task of Kafka Streams that lives as long as the
application and gets the same records has the same results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jesenska.pipeline.streams_on_spark.cutting import SubTopology, cut, in_order
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Output
from tests.units.pipeline.streams.comparison import differences
from tests.units.pipeline.streams.interpreted import Interpreter
from tests.units.pipeline.streams.interpreted import outcome as outcome_of_driver
from tests.units.pipeline.streams.topology_spec import Json

PARTS = frozenset(("error", "describe", "output", "seen", "stores", "dropped"))

ORDER = "order among topics that are joined"
IN_A_ROW = "sub-topologies in a row"
PARTITIONS = "several partitions"
CLOCK = "wall-clock punctuations"
ATTRIBUTES = "a new processor"
STREAM_TIME = "stream time of a sub-topology"
ERROR = "an error takes its micro-batch back"

Difference = tuple[str, Any, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """The properties of a topology that the differences depend on."""

    reads_several_topics: bool
    has_global_tables: bool
    sub_topologies: int
    feeds_itself: bool

    @classmethod
    def of(cls, description: Json) -> Facts:
        interpreter = Interpreter(description)
        parts = cut(interpreter.topology(), interpreter.settings["application.id"])
        own: list[SubTopology] = [part for part in parts if not part.is_global]
        return cls(
            any(len(part.reads) > 1 for part in own),
            len(own) < len(parts),
            len(own),
            any(in_order([part])[1] for part in own),
        )


def has_attributes(description: Json) -> bool:
    """True if a processor counts in an attribute."""
    return any(step.get("processor") == "two ticks" for step in description["steps"])


def only_ticks_differ(description: Json, outputs: Sequence[list[Output]]) -> bool:
    """True if the two sides, which gave these outputs for a micro-batch, differ in the ticks of a processor that
    counts in an attribute, and in nothing else."""
    return (
        has_attributes(description)
        and len({tuple(record for record in made if not _is_of_tick(record)) for made in outputs}) == 1
    )


def _is_of_tick(record: Output) -> bool:
    """True if the record belongs to a tick. A tick has its number as its value, which may be the key of later
    records."""
    return record.key == b"tick" or (record.value or b"").isdigit()


def asks_for_time(description: Json, *kinds: str) -> bool:
    return any(step.get("time") in kinds or step.get("processor") == "stream time" for step in description["steps"])


def unexplained(
    description: Json, expected: Json, ours: Json, partitions: int, titles: set[str]
) -> Iterator[Difference]:
    """Yields the unknown differences. Adds the known differences that occurred to `titles`."""
    if partitions > 1:
        expected, ours = _sorted(expected), _sorted(ours)
    found = list(differences(expected, ours, parts=PARTS))
    if not found:
        return
    if "error" in expected or "error" in ours:
        if ours.get("error", {}).get("when") == "build" or expected.get("error", {}).get("when") == "build":
            yield from found
            return
        found = list(_after_error(expected, ours, titles))
    facts = Facts.of(description)
    why = list(_reasons(description, facts, partitions))
    titles.update(why if found else ())
    if not why:
        yield from found
    elif (
        found
        and facts.sub_topologies == 1
        and not facts.feeds_itself
        and partitions == 1
        and "error" not in ours
        and "error" not in expected
    ):
        # The test driver gives the same if it gets the records in the order in which they were processed.
        yield from differences(outcome_of_driver({**description, "input": ours["taken"]}), ours, parts=PARTS)
    elif _ends_alike(description, facts):
        yield from (difference for difference in _last_values(expected, ours))


def _reasons(description: Json, facts: Facts, partitions: int) -> Iterator[str]:
    if facts.reads_several_topics or facts.has_global_tables:
        yield ORDER
    if any(happening.get("topic") in _written(description) for happening in description["input"]):
        yield IN_A_ROW
    if partitions > 1 and not (facts.sub_topologies == 1 and is_by_key(description)):
        yield PARTITIONS
    if asks_for_time(description, "wall clock"):
        yield CLOCK
    if facts.sub_topologies > 1 and asks_for_time(description, "stream"):
        yield STREAM_TIME


def _written(description: Json) -> set[str]:
    """The topics that the topology writes, among those that it names."""
    return {step["topic"] for step in description["steps"] if step["do"] in ("to", "through") and "topic" in step}


#: Steps whose result for a key does not depend on other keys.
_BY_KEY = frozenset(
    (
        *(
            "stream",
            "table",
            "filter",
            "filter_not",
            "map_values",
            "flat_map_values",
            "peek",
            "foreach",
            "merge",
            "split",
            "branch",
            "to",
        ),
        *(
            "to_stream",
            "to_table",
            "join",
            "group_by_key",
            "count",
            "reduce",
            "aggregate",
            "transform_values",
            "process",
            "process_values",
        ),
        "add_state_store",
    )
)


def is_by_key(description: Json) -> bool:
    return all(
        step["do"] in _BY_KEY
        and "windows" not in step
        and "every_ms" not in step
        and step.get("processor", "changes") in ("changes", "count seen", "look up")
        and not (step["do"] == "to_stream" and "function" in step)
        for step in description["steps"]
    )


def _sorted(outcome: Json) -> Json:
    """Sorts stores by their keys, since each partition has an order of its own."""
    return {
        **outcome,
        "stores": {name: sorted(content, key=str) for name, content in outcome.get("stores", {}).items()},
    }


def _after_error(expected: Json, ours: Json, titles: set[str]) -> Iterator[Difference]:
    """Yields the differences unless the output before the error is the beginning of the expected output."""
    titles.add(ERROR)
    if ("error" in expected) != ("error" in ours):
        yield "error", expected.get("error"), ours.get("error")
    for part in ("output", "seen"):
        for name, records in ours.get(part, {}).items():
            for key in {str(record[0]) for record in records}:
                mine = [record for record in records if str(record[0]) == key]
                theirs = [record for record in expected[part].get(name, ()) if str(record[0]) == key]
                # A sub-topology without the error has all of its micro-batch.
                if mine[: len(theirs)] != theirs[: len(mine)]:
                    yield f"{part} {name}", theirs, mine


_OF_TABLES = frozenset(("table", "filter", "filter_not", "map_values", "join", "to_stream", "to"))


def _ends_alike(description: Json, facts: Facts) -> bool:
    """True if the final result does not depend on the order of topics: for joined tables.

    It does depend on the order in inner foreign-key joins, in Kafka Streams as well. The response that removes a
    result is dropped where the left value has changed meanwhile, and the changed value gets no response where the
    right value has been deleted."""
    is_inner = any(step.get("how") == "inner" and "foreign_key" in step for step in description["steps"])
    return {step["do"] for step in description["steps"]} <= _OF_TABLES and not facts.has_global_tables and not is_inner


def _last_values(expected: Json, ours: Json) -> Iterator[Difference]:
    for topic in expected["output"]:
        one, other = (
            {str(record[0]): record[1] for record in outcome["output"][topic]} for outcome in (expected, ours)
        )
        if {key: value for key, value in one.items() if value is not None} != {
            key: value for key, value in other.items() if value is not None
        }:
            yield f"output {topic}", one, other
