"""The programs of examples/ that use the Streams API. These tests calculate their results a second way, and compare
them with the results on Spark."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jesenska.pipeline.demo.flights import Stream, data_folder, flights, reference
from jesenska.pipeline.streams import Topology
from jesenska.pipeline.streams_on_spark import KafkaStreams
from jesenska.testing import BrokerProcess
from tests.processes.pipeline.conftest import Topics
from tests.processes.pipeline.streams_on_spark.test_kafka_streams import Given, expected, send, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[4] / "examples"
FLIGHTS = 3_000
HOUR_MS = 3_600_000


def example(name: str) -> Any:
    """The program as a module that Spark's workers cannot import."""
    described = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert described is not None and described.loader is not None
    module = importlib.util.module_from_spec(described)
    sys.modules[name] = module
    described.loader.exec_module(module)
    return module


def sold_and_shipped() -> list[Given]:
    """200 sales and shipments of five articles within some hours."""
    given: list[Given] = []
    for number in range(200):
        topic, quantity = ("shipments", 12) if number % 7 == 0 else ("sales", number * 5 % 4 + 1)
        given.append(
            (topic, b"article %d" % (number % 5), json.dumps({"quantity": quantity}).encode(), number * 120_000)
        )
    return given


def records(stream: Stream) -> list[Given]:
    rows = zip(stream.keys.to_pylist(), stream.values.to_pylist(), stream.timestamps.to_pylist(), strict=True)
    found: list[Given] = [(stream.topic, key, value, at) for key, value, at in rows]
    return found


def flown(count: int) -> list[Given]:
    return records(flights(data_folder(), count))


def known_planes(of: list[Given]) -> list[Given]:
    """The planes of the flights."""
    tails = {json.loads(value or b"")["tailnum"] for _, _, value, _ in of}
    return [given for given in records(reference(data_folder(), "planes")) if (given[1] or b"").decode() in tails]


def values(topology: Topology, given: list[Given], topic: str) -> dict[str, list[Any]]:
    """The values of the test driver, by key."""
    found = expected(topology, given, topic)
    return {
        (key or b"").decode(): [json.loads(value or b"null") for value, _ in records] for key, records in found.items()
    }


def test_what_is_low_is_reordered_and_what_sells_well_costs_more() -> None:
    program, given = example("streams_reorders"), sold_and_shipped()
    stock: dict[str, int] = defaultdict(int)
    orders: dict[str, list[Any]] = defaultdict(list)
    sold: dict[tuple[str, int], int] = defaultdict(int)
    for topic, key, text, at in given:
        article, quantity = (key or b"").decode(), json.loads(text or b"")["quantity"]
        stock[article] += quantity if topic == "shipments" else -quantity
        if topic == "sales":
            sold[article, at // HOUR_MS] += quantity
        if stock[article] < program.LOW:
            orders[article].append({"stock": stock[article], "quantity": program.FULL - stock[article]})
    assert values(program.reorders(), given, "reorders") == orders
    last_hour = max(hour for _, hour in sold)
    program.MANY = 10
    dearer: dict[str, list[Any]] = defaultdict(list)
    for (article, hour), number in sorted(sold.items(), key=lambda item: item[0][1]):
        if number > program.MANY and hour < last_hour:
            dearer[article].append({"sold": number, "factor": 1.1})
    assert dearer
    assert values(program.reorders(), given, "price-adjustments") == dearer


def test_working_days_are_the_flights_between_two_silences() -> None:
    program, given = example("streams_aircraft"), flown(FLIGHTS)
    planes = known_planes(given)
    models = {(key or b"").decode(): json.loads(text or b"")["model"] for _, key, text, _ in planes}
    days: dict[str, list[list[tuple[int, int]]]] = defaultdict(list)
    for _, _, text, at in given:
        flight = json.loads(text or b"")
        if flight["tailnum"] is not None:
            of_plane = days[flight["tailnum"]]
            # When the store has seen the time at which a day is over, that day is gone.
            if not of_plane or at - of_plane[-1][-1][0] >= program.SILENCE_MS:
                of_plane.append([])
            of_plane[-1].append((at, flight["distance"]))
    end = max(at for _, _, _, at in given)
    wanted = {
        tail: found
        for tail, of_plane in days.items()
        if (
            found := [
                (len(day), sum(miles for _, miles in day), models.get(tail))
                for day in of_plane
                if day[-1][0] + program.SILENCE_MS < end
            ]
        )
    }
    given_days = values(program.working_days(), planes + given, "working-days")
    assert {
        tail: [(day["flights"], day["miles"], day["model"]) for day in found] for tail, found in given_days.items()
    } == wanted
    assert max(len(day) for of_plane in days.values() for day in of_plane) > 2


def test_flights_that_leave_unusually_late_are_told_of() -> None:
    program, given = example("streams_alerts"), flown(20_000)
    delays: dict[str, list[int]] = defaultdict(list)
    wanted: dict[str, list[int]] = defaultdict(list)
    for _, _, text, _ in given:
        flight = json.loads(text or b"")
        if flight["dep_delay"] is None:
            continue
        route = f"{flight['origin']}-{flight['dest']}"
        before, delay = delays[route], flight["dep_delay"]
        if len(before) >= program.ENOUGH:
            mean = math.fsum(before) / len(before)
            deviation = math.sqrt(math.fsum((one - mean) ** 2 for one in before) / len(before))
            if delay > mean + program.DEVIATIONS * deviation:
                wanted[route].append(delay)
        before.append(delay)
    found = values(program.alerts(), given, "alerts")
    assert {route: [alert["delay"] for alert in told] for route, told in found.items()} == wanted
    assert sum(map(len, wanted.values())) > 20


@pytest.mark.parametrize("name", ["streams_word_count", "streams_reorders", "streams_aircraft", "streams_alerts"])
def test_a_program_says_what_it_gives(name: str) -> None:
    said = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")], capture_output=True, text=True, timeout=100, check=True
    )
    assert said.stdout.count("\n") > 1


@pytest.fixture(scope="module")
def own_topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    """Topics of a broker of their own, since the programs choose the names of their topics."""
    with BrokerProcess(tmp_path_factory.mktemp("examples") / "data") as broker:
        topics = Topics(broker.bootstrap)
        yield topics
        topics.close()


@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("name", "sinks"),
    [
        ("streams_reorders", ["reorders", "price-adjustments"]),
        ("streams_aircraft", ["working-days"]),
        ("streams_alerts", ["alerts"]),
    ],
)
def test_spark_gives_the_same(
    spark: SparkSession, own_topics: Topics, tmp_path: Path, name: str, sinks: list[str]
) -> None:
    program = example(name)
    program.ENOUGH, program.MANY = 5, 10
    given = sold_and_shipped() if name == "streams_reorders" else flown(FLIGHTS)
    if name == "streams_aircraft":
        given = known_planes(given) + given
    topology = program.topology()
    sources = {topic for topic, *_ in given}
    for topic in {*sources, *sinks}:
        own_topics.create(name=topic)
    send(own_topics, given, dict.fromkeys(sources, 1))
    config = {**program.config, "bootstrap.servers": own_topics.bootstrap, "state.dir": str(tmp_path)}
    with KafkaStreams(topology, config, spark=spark) as streams:
        streams.process_available()
    try:
        for sink in sinks:
            wanted = expected(topology, given, sink)
            assert wanted
            assert written(own_topics, sink) == wanted
    finally:
        for topic in {*sources, *sinks}:
            own_topics.delete(topic)
