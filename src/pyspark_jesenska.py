"""The module in which Spark finds the data source `jesenska`: it looks for top-level modules called pyspark_<name>
with a class DefaultSource, so that `format("jesenska")` works without a call to register it."""

from jesenska.pipeline.spark.session import require_pyspark

require_pyspark()

from jesenska.pipeline.connector.source import JesenskaDataSource as DefaultSource  # noqa: E402  it cannot be imported with an older PySpark

__all__ = ["DefaultSource"]
