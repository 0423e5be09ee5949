"""Spark pipelines: `session()` starts Spark, `format("jesenska")` reads and writes topics. Needs `pip install "jesenska[spark]"`."""

from jesenska.pipeline.spark import session

__all__ = ["session"]
