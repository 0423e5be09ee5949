"""The demo's results computed another way: by DuckDB, straight from the CSV files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from jesenska.pipeline.demo.flights import data_folder, flights_csv

Rows = list[tuple[Any, ...]]

_COUNTS = """
    count(*) AS flights,
    count(*) FILTER (dep_delay IS NULL) AS cancelled,
    count(dep_delay) AS departed,
    coalesce(sum(dep_delay), 0)::BIGINT AS dep_delay_sum,
    count(arr_delay) AS arrived,
    coalesce(sum(arr_delay), 0)::BIGINT AS arr_delay_sum,
    coalesce(sum(seats), 0)::BIGINT AS seats,
    CASE WHEN count(dep_delay) > 0 THEN sum(dep_delay)::DOUBLE / count(dep_delay) END AS mean_dep_delay,
    CASE WHEN count(arr_delay) > 0 THEN sum(arr_delay)::DOUBLE / count(arr_delay) END AS mean_arr_delay
"""
_VISIBILITY = """
    CASE WHEN visib IS NULL THEN 'no report' WHEN visib < 1 THEN '0 to 1 miles' WHEN visib < 3 THEN '1 to 3 miles' WHEN visib < 6 THEN '3 to 6 miles'
         WHEN visib < 10 THEN '6 to 10 miles' ELSE 'from 10 miles' END
"""  # noqa: E501
_QUERIES = {
    "by_carrier_hour": (
        f"SELECT carrier, airline, strftime(time_hour, '%Y-%m-%dT%H:%M:%SZ') AS hour, {_COUNTS} FROM joined GROUP BY "
        f"ALL ORDER BY hour, carrier"
    ),
    "by_route": f"SELECT origin || '-' || dest AS route, destination, {_COUNTS} FROM joined GROUP BY ALL ORDER BY route",  # noqa: E501
    "by_weather": f"SELECT {_VISIBILITY} AS visibility, NULL AS name, {_COUNTS} FROM joined GROUP BY ALL ORDER BY visibility",  # noqa: E501
}


def expected(scratch: Path, flights: int) -> dict[str, Rows]:
    """The three results for the first flights in their order."""
    folder = data_folder()
    text = scratch / "flights.csv"
    text.write_bytes(flights_csv(folder))
    connection = duckdb.connect()
    try:
        connection.execute("SET TimeZone = 'UTC'")
        for name, file in {
            "flights": text,
            **{name: folder / f"{name}.csv" for name in ("airlines", "airports", "planes", "weather")},
        }.items():
            connection.execute(
                f"CREATE TABLE {name} AS SELECT row_number() OVER () AS place, * FROM read_csv('{file}', nullstr = "
                f"'NA')"
            )
        connection.execute(
            f"""
            CREATE TABLE joined AS
            WITH first AS (
                SELECT * FROM flights
                ORDER BY time_hour, minute, carrier || '-' || flight || '-' || origin || '-' || strftime(time_hour, '%Y-%m-%dT%H:%M:%SZ')
                LIMIT {flights}
            ),
            last_weather AS (SELECT origin, time_hour, arg_max(coalesce(visib, -1), place) AS visib FROM weather GROUP BY ALL)
            SELECT first.*, airlines.name AS airline, airports.name AS destination, planes.seats, nullif(last_weather.visib, -1) AS visib
            FROM first
            LEFT JOIN airlines USING (carrier)
            LEFT JOIN airports ON airports.faa = first.dest
            LEFT JOIN planes USING (tailnum)
            LEFT JOIN last_weather ON last_weather.origin = first.origin AND last_weather.time_hour = first.time_hour
            """  # noqa: E501
        )
        return {name: connection.execute(query).fetchall() for name, query in _QUERIES.items()}
    finally:
        connection.close()


def in_parquet(folder: Path) -> dict[str, Rows]:
    """The three results as the demo wrote them."""
    connection = duckdb.connect()
    try:
        connection.execute("SET TimeZone = 'UTC'")
        found = {}
        for name in _QUERIES:
            hour = "strftime(hour, '%Y-%m-%dT%H:%M:%SZ') AS hour, " if name == "by_carrier_hour" else ""
            order = "hour, key" if hour else "key"
            found[name] = connection.execute(
                f"""SELECT key, name, {hour} flights, cancelled, departed, dep_delay_sum, arrived, arr_delay_sum, seats, mean_dep_delay, mean_arr_delay
                    FROM read_parquet('{folder}/results/{name}.parquet/*.parquet') ORDER BY {order}"""  # noqa: E501
            ).fetchall()
        return found
    finally:
        connection.close()
