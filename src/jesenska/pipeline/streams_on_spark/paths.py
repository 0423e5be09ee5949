"""The paths for the records of a sub-topology, except for the engine, which fits all."""

from __future__ import annotations

from jesenska.pipeline.streams_on_spark.columns.columns_path import ColumnsPath
from jesenska.pipeline.streams_on_spark.direct.direct_path import DirectPath
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work
from jesenska.pipeline.streams_on_spark.tasks.path_refusals import OtherWayError

Way = ColumnsPath | DirectPath


def ways_of(work: Work) -> tuple[list[Way], list[str]]:
    """Returns the paths that fit, in the order of trial; and the reasons why the paths before the first one do not
    fit."""
    found: list[Way] = []
    reasons = []
    for kind in (ColumnsPath, DirectPath):
        try:
            found.append(kind(work))
        except OtherWayError as error:
            if not found:
                reasons.append(str(error))
    return found, reasons
