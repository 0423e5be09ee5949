"""Spark pipelines: `session()` starts Spark, `format("jesenska")` reads and writes topics, `lag(query.lastProgress)`
says how far a stream is behind. Needs `pip install "jesenska[spark]"`."""

from jesenska.pipeline.lag import PartitionLag, lag, offsets_behind_latest
from jesenska.pipeline.spark.session import session

__all__ = ["PartitionLag", "lag", "offsets_behind_latest", "session"]
