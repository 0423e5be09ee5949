"""A Spark session, and topics of a broker for it."""

from tests.processes.pipeline.conftest import bootstrap, reading, spark, topics

__all__ = ["bootstrap", "reading", "spark", "topics"]
