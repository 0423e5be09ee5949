"""Runs a topology of the Streams API on Spark: `KafkaStreams`. Spark is imported only when an application runs."""

from jesenska.pipeline.streams_on_spark.kafka_streams import KafkaStreams, State

__all__ = ["KafkaStreams", "State"]
