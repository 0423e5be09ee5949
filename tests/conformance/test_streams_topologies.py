"""Topologies that are described once, run by Apache Kafka Streams 3.9.1 and by our TopologyTestDriver: the same
answers. `python -m tests.units.pipeline.streams NAME` shows one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conformance.conftest import need
from tests.peers.streams_judge import StreamsJudge, StreamsJudgeError
from tests.profiles import rounds
from tests.units.pipeline.streams.comparison import beside, compared, differences, written
from tests.units.pipeline.streams.generated_topologies import named, topologies
from tests.units.pipeline.streams.interpreted import outcome
from tests.units.pipeline.streams.known_differences import KNOWN, known
from tests.units.pipeline.streams.topology_spec import Json

_COUNT = rounds(quick=100, ci=500, everything=2000)
#: With so many, everything that is known to differ is met.
_ALL_DIFFERENCES = 500
_DOCUMENT = Path(__file__).parents[2] / "docs" / "streams.md"

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600 + _COUNT)]


@pytest.fixture(scope="module")
def kafka_streams() -> Iterator[StreamsJudge]:
    need("java", "mvn")
    with StreamsJudge("3.9.1") as judge:
        yield judge


class Compared(NamedTuple):
    """A description, and what differs."""

    description: Json
    differences: list[tuple[str, Any, Any]]


@pytest.fixture(scope="module")
def all_compared(kafka_streams: StreamsJudge) -> list[Compared]:
    """Everything runs in one place on both sides, so that the order across keys is the same too; but RocksDB orders
    windows that close together otherwise than memory does."""

    def compare(description: Json) -> Compared:
        expected, ours = kafka_streams.outcome(description), outcome(description)
        return Compared(
            description,
            list(differences(expected, ours, in_one_order="on_disk" not in description, parts=compared(description))),
        )

    return [compare(description) for description in topologies(_COUNT)]


def test_topologies_give_what_kafka_streams_gives(all_compared: list[Compared]) -> None:
    differing: list[str] = []
    first = ""
    for description, found in all_compared:
        unknown = [difference for difference in found if known(description, difference) is None]
        if unknown:
            differing.append(f"{description['name']} ({', '.join(name for name, _, _ in unknown)})")
            first = first or "\n".join([written(description), *(beside(*difference) for difference in unknown)])
    assert not differing, f"{len(differing)} of {_COUNT} differ: {differing[:20]}\n{first}"


@pytest.mark.skipif(_COUNT < _ALL_DIFFERENCES, reason="so few topologies do not meet all differences")
def test_known_differences_are_met_and_documented(all_compared: list[Compared]) -> None:
    document = _DOCUMENT.read_text(encoding="utf-8")
    met = {
        item.title
        for description, found in all_compared
        for item in (known(description, difference) for difference in found)
        if item is not None
    }
    for item in KNOWN:
        assert item.title in met, f"nothing differs any more: {item.title}"
        assert f"| {item.title} |" in document


def test_the_judge_is_kafka_streams(kafka_streams: StreamsJudge) -> None:
    """What is in its answers is what the documentation of Kafka Streams says of a word count."""
    found = kafka_streams.outcome(
        {
            "name": "word count",
            "steps": [
                {"do": "stream", "topics": ["lines"], "as": "lines", "key": "string", "value": "string"},
                {
                    "do": "flat_map_values",
                    "of": "lines",
                    "function": "words",
                    "as": "words",
                    "key": "string",
                    "value": "string",
                },
                {
                    "do": "group_by",
                    "of": "words",
                    "function": "value",
                    "as": "grouped",
                    "key": "string",
                    "value": "string",
                },
                {"do": "count", "of": "grouped", "store": "counts", "as": "counts", "key": "string", "value": "long"},
                {"do": "to_stream", "of": "counts", "as": "changes", "key": "string", "value": "long"},
                {"do": "to", "of": "changes", "topic": "word-counts"},
            ],
            "input": [
                {"topic": "lines", "key": None, "value": "all streams lead to kafka", "timestamp": 1},
                {"topic": "lines", "key": None, "value": "kafka streams", "timestamp": 2},
            ],
        }
    )
    assert found["output"] == {
        "word-counts": [
            ["all", 1, 1],
            ["streams", 1, 1],
            ["lead", 1, 1],
            ["to", 1, 1],
            ["kafka", 1, 1],
            ["kafka", 2, 2],
            ["streams", 2, 2],
        ]
    }
    assert found["stores"] == {
        "counts": [["all", 1, 1], ["kafka", 2, 2], ["lead", 1, 1], ["streams", 2, 2], ["to", 1, 1]]
    }
    assert "Sub-topology: 1" in found["describe"]


def test_a_description_that_says_nothing_sensible_is_refused(kafka_streams: StreamsJudge) -> None:
    with pytest.raises(StreamsJudgeError):
        kafka_streams.outcome({"name": "nothing"})


def test_the_judge_says_what_fails_and_when(kafka_streams: StreamsJudge) -> None:
    assert kafka_streams.outcome(named("mistake: two stores of one name"))["error"]["when"] == "build"
    full = kafka_streams.outcome(named("suppress a table until a time limit 3"))
    assert (full["error"]["when"], full["error"]["at"]) == ("input", 1)
