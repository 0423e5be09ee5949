"""The Spark pipeline. `session()` starts Spark, `format("jesenska")` reads and writes topics, and
`lag(query.lastProgress)` returns the lag of a streaming query for each partition. Needs `pip install
"jesenska[spark]"`."""

from jesenska.pipeline.lag import PartitionLag, lag, offsets_behind_latest
from jesenska.pipeline.spark.session import session

__all__ = ["PartitionLag", "lag", "offsets_behind_latest", "session"]
