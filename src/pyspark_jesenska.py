"""Where Spark finds the data source `jesenska`: it looks for top-level modules called pyspark_<name> with a class
DefaultSource, so that `format("jesenska")` works without a call to register it."""

from jesenska.pipeline.source import JesenskaDataSource as DefaultSource

__all__ = ["DefaultSource"]
