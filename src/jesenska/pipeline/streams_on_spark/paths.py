"""Finds the fast paths (columns path, direct path) on which the records of a sub-topology can be processed. The engine
(the test driver's processors) can process every sub-topology, so it is always the last choice."""

from __future__ import annotations

from jesenska.pipeline.streams_on_spark.columns.columns_path import ColumnsPath
from jesenska.pipeline.streams_on_spark.direct.direct_path import DirectPath
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work
from jesenska.pipeline.streams_on_spark.tasks.path_refusals import OtherWayError

Way = ColumnsPath | DirectPath


def ways_of(work: Work) -> tuple[list[Way], list[str]]:
    """Returns the fast paths that can process this sub-topology, in the order in which they are tried. Also returns
    the reasons why faster paths than the first returned path cannot be used."""
    found: list[Way] = []
    reasons = []
    for kind in (ColumnsPath, DirectPath):
        try:
            found.append(kind(work))
        except OtherWayError as error:
            if not found:
                reasons.append(str(error))
    return found, reasons
