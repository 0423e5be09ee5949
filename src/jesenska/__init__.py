"""jesenska: Apache Kafka's system in Python, with its data pipeline on Spark."""

__version__ = "0.1.0"
