"""The ways that the records of a sub-topology may go, but for the engine, which can go with all."""

from __future__ import annotations

from jesenska.pipeline.streams_on_spark.columns_path import ColumnsPath
from jesenska.pipeline.streams_on_spark.direct_path import DirectPath
from jesenska.pipeline.streams_on_spark.other_way import OtherWayError
from jesenska.pipeline.streams_on_spark.partition_task import Work

Way = ColumnsPath | DirectPath


def ways_of(work: Work) -> tuple[list[Way], list[str]]:
    """Those that fit, the one to be tried first in front; and why none fits that would stand before it."""
    found: list[Way] = []
    reasons = []
    for kind in (ColumnsPath, DirectPath):
        try:
            found.append(kind(work))
        except OtherWayError as error:
            if not found:
                reasons.append(str(error))
    return found, reasons
