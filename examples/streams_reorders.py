"""Computes reorders and price adjustments from sales and shipments, with the Streams API.

    python examples/streams_reorders.py                         some records, run by the test driver
    jesenska streams run examples/streams_reorders.py           on Spark, from the topics sales and shipments

The key of every record is an article; values are JSON.

    sales               {"quantity": 3}                   in
    shipments           {"quantity": 20}                  in
    reorders            {"stock": 4, "quantity": 16}      out, when the stock is below 5; fills it up to 20
    price-adjustments   {"sold": 31, "factor": 1.1}       out, for each hour in which more than 30 pieces were sold"""

from __future__ import annotations

import sys

from jesenska.pipeline.streams import (
    Serdes,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyTestDriver,
    aggregate,
    lit,
    struct,
    value,
)

LOW, FULL, MANY = 5, 20, 30
HOUR_MS = 3_600_000
_ARTICLE, _JSON, _NUMBER = Serdes.string(), Serdes.json(), Serdes.long()


def reorders() -> Topology:
    """Returns the topology from sales and shipments to reorders and price adjustments."""
    builder = StreamsBuilder()
    sales = builder.stream("sales", key=_ARTICLE, value=_JSON)
    shipments = builder.stream("shipments", key=_ARTICLE, value=_JSON)

    changes = shipments.map_values(value["quantity"], value=_NUMBER).merge(
        sales.map_values(lit(0) - value["quantity"], value=_NUMBER)
    )
    stock = changes.group_by_key(key=_ARTICLE, value=_NUMBER).aggregate(
        0, aggregate + value, store="stock", value=_NUMBER
    )
    low = stock.to_stream().filter(value < LOW)
    low.map_values(struct(stock=value, quantity=lit(FULL) - value), value=_JSON).to("reorders")

    sold = sales.map_values(value["quantity"], value=_NUMBER).group_by_key(key=_ARTICLE, value=_NUMBER)
    hourly = sold.windowed_by(TimeWindows(HOUR_MS)).aggregate(
        0, aggregate + value, store="sold-in-an-hour", value=_NUMBER
    )
    hours = hourly.suppress(Suppressed.until_window_closes()).to_stream().filter(value > MANY)
    adjustments = hours.map(
        lambda window, number: (window.key, {"sold": number, "factor": 1.1}), key=_ARTICLE, value=_JSON
    )
    adjustments.to("price-adjustments")
    return builder.build()


topology = reorders
config = {
    "application.id": "reorders",
    "bootstrap.servers": "localhost:9092",
    "state.dir": "state",
    "commit.interval.ms": 1000,
}


def main() -> None:
    with TopologyTestDriver(reorders()) as driver:
        topics = {name: driver.create_input_topic(name, key=_ARTICLE, value=_JSON) for name in ("shipments", "sales")}
        outputs = {
            name: driver.create_output_topic(name, key=_ARTICLE, value=_JSON)
            for name in ("reorders", "price-adjustments")
        }
        for minute, (topic, quantity) in enumerate(
            [("shipments", 40), ("sales", 20), ("sales", 12), ("sales", 4), ("shipments", 16)]
        ):
            topics[topic].pipe_input("lamp", {"quantity": quantity}, timestamp=minute * 60_000)
        topics["sales"].pipe_input("lamp", {"quantity": 1}, timestamp=2 * HOUR_MS)
        for name, output in outputs.items():
            for article, told in output.read_key_values_to_list():
                sys.stdout.write(f"{name}: {article} {told}\n")


if __name__ == "__main__":
    main()
