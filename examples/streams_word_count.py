"""Counts words with the Streams API.

    python examples/streams_word_count.py "hello again"     run by the test driver: no broker, no Spark
    jesenska streams run examples/streams_word_count.py     on Spark, from the topic lines to the topic word-counts

The first command prints the topology, and every new count."""

from __future__ import annotations

import sys

from jesenska.pipeline.streams import Serdes, StreamsBuilder, Topology, TopologyTestDriver, value


def word_count() -> Topology:
    """Returns the topology from the topic lines to the topic word-counts."""
    builder = StreamsBuilder()
    lines = builder.stream("lines", key=Serdes.string(), value=Serdes.string())
    words = lines.flat_map_values(value.lower().split(" ")).filter(value != "")
    counts = words.group_by(value, key=Serdes.string(), value=Serdes.string()).count(store="counts")
    counts.to_stream().to("word-counts", key=Serdes.string(), value=Serdes.long())
    return builder.build()


topology = word_count
config = {
    "application.id": "word-count",
    "bootstrap.servers": "localhost:9092",
    "state.dir": "state",
    "commit.interval.ms": 1000,
}


def main(lines: list[str]) -> None:
    topology = word_count()
    sys.stdout.write(topology.describe())
    with TopologyTestDriver(topology) as driver:
        topic = driver.create_input_topic("lines", key=Serdes.string(), value=Serdes.string(), auto_advance=1000)
        counts = driver.create_output_topic("word-counts", key=Serdes.string(), value=Serdes.long())
        for line in lines:
            topic.pipe_value(line)
            for word, count in counts.read_key_values_to_list():
                sys.stdout.write(f"{word} {count}\n")


if __name__ == "__main__":
    main(sys.argv[1:] or ["All streams lead to Kafka", "Hello Kafka Streams", "Join Kafka Summit"])
