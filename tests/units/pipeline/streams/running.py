"""Runs a topology over records of strings, for tests: input and output in short form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypedDict

from jesenska.pipeline.streams import Serde, Serdes, StreamsBuilder, TopologyTestDriver

STRING = Serdes.string()
LONG = Serdes.long()


class KeyAndValue(TypedDict):
    key: Serde
    value: Serde


#: Serdes of a topic of strings.
S: KeyAndValue = {"key": STRING, "value": STRING}

Row = tuple[str, Any, Any, int]
"""topic, key, value, timestamp"""


def driver_of(builder: StreamsBuilder, **settings: Any) -> TopologyTestDriver:
    return TopologyTestDriver(
        builder.build(),
        {"application.id": "test", **{name.replace("__", "."): value for name, value in settings.items()}},
    )


def pipe(driver: TopologyTestDriver, rows: Iterable[Row]) -> None:
    for topic, key, value, timestamp in rows:
        driver.create_input_topic(topic, **S).pipe_input(key, value, timestamp)


def read(
    driver: TopologyTestDriver, topic: str = "out", key: Serde = STRING, value: Serde = STRING
) -> list[tuple[Any, Any, int]]:
    """Returns the output since the last call: key, value, timestamp. Windowed keys are (key, start, end)."""
    return [
        (shown(record.key), record.value, record.timestamp)
        for record in driver.create_output_topic(topic, key=key, value=value).read_records_to_list()
    ]


def shown(key: Any) -> Any:
    return (key.key, key.window.start, key.window.end) if hasattr(key, "window") else key


def outcome(
    builder: StreamsBuilder, rows: Iterable[Row], key: Serde = STRING, value: Serde = STRING
) -> list[tuple[Any, Any, int]]:
    """Returns the output of the topology to the topic `out` for these records."""
    with driver_of(builder) as driver:
        pipe(driver, rows)
        return read(driver, key=key, value=value)


def append(key: Any, value: Any, aggregate: Any) -> str:
    """An aggregator that shows the added values, in order."""
    return f"{aggregate}+{value}"


def pair(left: Any, right: Any) -> str:
    """A joiner that shows both sides."""
    return f"({left},{right})"
