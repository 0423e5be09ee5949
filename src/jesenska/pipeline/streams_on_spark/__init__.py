"""A topology of the Streams API that runs on Spark: `KafkaStreams`. Spark is imported when something runs."""

from jesenska.pipeline.streams_on_spark.kafka_streams import KafkaStreams, State

__all__ = ["KafkaStreams", "State"]
