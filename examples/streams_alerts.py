"""Writes alerts for flights that leave much later than is usual on their route.

    python examples/streams_alerts.py 20000                     the first 20,000 flights, run by the test driver
    jesenska streams run examples/streams_alerts.py             on Spark, from the topic flights

The flights are real (see streams_aircraft.py). A processor keeps the mean and the standard deviation of the earlier
delays of each route in a store. It writes an alert if a flight's delay exceeds the mean by more than four deviations,
and at least 50 flights of the route were seen before.

    flights    {"origin": "JFK", "dest": "BOS", "dep_delay": 4, ...}                             in
    alerts     JFK-BOS: {"flight": "B6 1018", "delay": 210, "usual": 9.5, "deviation": 31.2}     out"""

from __future__ import annotations

import math
import sys
from typing import Any

from jesenska.pipeline.demo.flights import data_folder, flights
from jesenska.pipeline.streams import (
    Processor,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    Topology,
    TopologyTestDriver,
    concat,
    lit,
    struct,
    value,
)

DEVIATIONS, ENOUGH = 4, 50
_NAME, _JSON = Serdes.string(), Serdes.json()


class Unusual(Processor):
    """Writes an alert for each unusual delay. The store `routes` has count, mean and sum of squares by route."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.routes = context.get_state_store("routes")

    def process(self, record: Record) -> None:
        delay = record.value["delay"]
        count, mean, squares = self.routes.get(record.key) or (0, 0.0, 0.0)
        deviation = math.sqrt(squares / count) if count else 0.0
        if count >= ENOUGH and delay > mean + DEVIATIONS * deviation:
            told = {
                "flight": record.value["flight"],
                "delay": delay,
                "usual": round(mean, 1),
                "deviation": round(deviation, 1),
            }
            self.context.forward(Record(record.key, told, record.timestamp))
        # Welford's algorithm updates the mean and the sum of squares with one more value.
        step = delay - mean
        mean += step / (count + 1)
        self.routes.put(record.key, [count + 1, mean, squares + step * (delay - mean)])


def alerts() -> Topology:
    """Returns the topology from the topic flights to the topic alerts, with the route as key."""
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("routes", key=_NAME, value=_JSON))
    left = builder.stream("flights", key=_NAME, value=_JSON).filter(value["dep_delay"].is_not_null())
    route = concat(value["origin"], lit("-"), value["dest"])
    delays = left.map(
        (
            route,
            struct(flight=concat(value["carrier"], lit(" "), value["flight"].cast("string")), delay=value["dep_delay"]),
        )
    )
    delays.repartition(name="by-route", key=_NAME, value=_JSON).process(Unusual, "routes").to(
        "alerts", key=_NAME, value=_JSON
    )
    return builder.build()


topology = alerts
config = {
    "application.id": "alerts",
    "bootstrap.servers": "localhost:9092",
    "state.dir": "state",
    "commit.interval.ms": 1000,
}


def main(limit: int) -> None:
    stream = flights(data_folder(), limit)
    with TopologyTestDriver(alerts()) as driver:
        for key, row, at in zip(
            stream.keys.to_pylist(), stream.values.to_pylist(), stream.timestamps.to_pylist(), strict=True
        ):
            driver.pipe_raw("flights", key, row, at)
        output = driver.create_output_topic("alerts", key=_NAME, value=_JSON)
        for route, alert in output.read_key_values_to_list():
            sys.stdout.write(f"{route} {alert}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
