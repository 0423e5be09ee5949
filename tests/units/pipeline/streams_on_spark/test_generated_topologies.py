"""Generated topologies, micro-batch by micro-batch without Spark: state files against tasks that are kept, and both
against the test driver. `python -m tests.processes.pipeline.streams_on_spark --in-memory` runs as many as are
wanted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from jesenska.pipeline.streams import Serdes, StreamsBuilder, StreamsConfig, StreamsError
from jesenska.pipeline.streams.engine.queues import RawRecord
from jesenska.pipeline.streams_on_spark.changelogs import logged_stores
from jesenska.pipeline.streams_on_spark.direct.direct_path import DirectPath
from jesenska.pipeline.streams_on_spark.queries.interactive_queries import parts_of
from jesenska.pipeline.streams_on_spark.queries.restoration import restore_partition
from jesenska.pipeline.streams_on_spark.stores.state_stores import WindowStoreInFile
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work
from tests.processes.pipeline.streams_on_spark.known_differences import ATTRIBUTES, only_ticks_differ, unexplained
from tests.processes.pipeline.streams_on_spark.micro_batches import (
    Application,
    Cuts,
    DifferentSidesError,
    KeptTasks,
    StateFiles,
    at_random,
    in_rounds,
    outcome,
    record_by_record,
    used_stores,
)
from tests.units.pipeline.streams.comparison import beside, differences
from tests.units.pipeline.streams.generated_topologies import named, topologies
from tests.units.pipeline.streams.interpreted import Interpreter, is_table
from tests.units.pipeline.streams.interpreted import outcome as outcome_of_driver
from tests.units.pipeline.streams.interpreted import rows as store_rows
from tests.units.pipeline.streams.topology_spec import Json
from tests.units.pipeline.streams_on_spark.test_direct_path import rows

THREE_HUNDRED = topologies(300)


def check(description: Json, cuts: Cuts, partitions: int, directory: Path, titles: Counter[str]) -> StateFiles:
    """Raises an error with the differences, except known ones."""
    chance = Random(description["name"])
    files = StateFiles(directory / description["name"], chance)
    try:
        ours = outcome(description, cuts, [files, KeptTasks()], partitions=partitions, chance=chance)
    except DifferentSidesError as error:
        if not only_ticks_differ(description, error.outputs):
            raise
        titles[ATTRIBUTES] += 1
        return files
    met: set[str] = set()
    found = list(unexplained(description, outcome_of_driver(description), ours, partitions, met))
    assert not found, "\n".join([description["name"], *(beside(*difference) for difference in found)])
    titles.update(met)
    return files


@pytest.mark.parametrize(
    ("cuts", "partitions", "chosen"),
    [
        pytest.param(record_by_record, 1, slice(0, None, 8), id="record by record"),
        pytest.param(in_rounds(1), 1, slice(1, None, 4), id="at once"),
        pytest.param(in_rounds(2), 1, slice(2, None, 4), id="in two rounds"),
        pytest.param(at_random, 1, slice(3, None, 4), id="at random"),
        pytest.param(in_rounds(2), 3, slice(2, None, 5), id="in two rounds, three partitions"),
        pytest.param(at_random, 2, slice(4, None, 6), id="at random, two partitions"),
    ],
)
def test_micro_batches_give_what_kafka_streams_gives(
    cuts: Cuts, partitions: int, chosen: slice, tmp_path: Path
) -> None:
    ways: Counter[str] = Counter()
    titles: Counter[str] = Counter()
    for number, description in enumerate(THREE_HUNDRED[chosen]):
        # Every second one with expressions in place of functions, so that it may go as columns.
        ways.update(check({**description, "expressions": number % 2 == 1}, cuts, partitions, tmp_path, titles).ways)
    assert ways.keys() == {"ColumnsPath", "DirectPath", "engine"}
    assert min(ways.values()) > 1


def test_expressions_give_what_functions_give() -> None:
    for description in THREE_HUNDRED[::6]:
        one, other = outcome_of_driver(description), outcome_of_driver({**description, "expressions": True})
        assert not list(differences(one, other, in_one_order=True)), description["name"]


def test_stores_are_restored_from_their_changelogs(tmp_path: Path) -> None:
    restored = 0
    for description in THREE_HUNDRED[::10]:
        place = tmp_path / description["name"]
        files = StateFiles(place / "made", Random(description["name"]))
        interpreter = Interpreter(description)
        try:
            application = Application(interpreter, interpreter.topology(), 2, [files])
            at_random(application, description["input"], Random(0))
        except StreamsError:
            continue  # one that cannot be built, or ends with an error
        for work in application.works.values():
            processors = work.processors
            specs = {
                name: processors.stores[name]
                for name in logged_stores(processors, used_stores(work), True)
                if is_table(name)
            }
            logged: dict[int, list[RawRecord]] = {}
            for (name, partition, key), (value, at) in files.changelogs.items():
                if name in specs:
                    logged.setdefault(partition, []).append(RawRecord(name, 0, key, value, at))
            for partition, records in logged.items():
                restore_partition(place / "restored" / str(work.number) / f"{partition}.state", specs, iter(records))
            for name, spec in specs.items() if logged else ():
                one, other = (
                    [
                        row
                        for store in parts_of(spec, work.plan, work.config, place / made / str(work.number))
                        for row in store_rows(store.all())
                    ]
                    for made in ("made", "restored")
                )
                assert one == other, (description["name"], name)
                restored += len(one)
    assert restored > 50


def test_a_mistake_in_a_store_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake: windows are not found after a micro-batch."""
    monkeypatch.setattr(WindowStoreInFile, "_keep", lambda *_: None)
    with pytest.raises(DifferentSidesError):
        check(named("count in tumbling windows, grace 15"), in_rounds(2), 1, tmp_path, Counter())


def test_a_record_that_is_lost_is_found(tmp_path: Path) -> None:
    """Both sides agree, and the test driver has one more."""
    description = named("map_values of a stream: upper")
    ours = outcome(
        description, lambda application, given, chance: record_by_record(application, given[1:], chance), [KeptTasks()]
    )
    assert list(unexplained(description, outcome_of_driver(description), ours, 1, set()))


def test_a_partition_without_records_for_a_store_is_no_hindrance(tmp_path: Path) -> None:
    """One of two partitions had only a dropped record."""
    builder = StreamsBuilder()
    builder.stream("a", key=Serdes.string(), value=Serdes.string()).group_by_key().count(store="kept").to_stream().to(
        "out", value=Serdes.long()
    )
    config = StreamsConfig({"default.key.serde": "string", "default.value.serde": "string"})
    work = Work.of(builder.build(), 0, config, {})
    DirectPath(work).run(rows([RawRecord("a", 0, None, b"1", 5)]), 0, 0, tmp_path)
    DirectPath(work).run(rows([RawRecord("a", 0, b"x", b"1", 5, (), 1)]), 1, 0, tmp_path)
    found = [
        pair for store in parts_of(work.processors.stores["kept"], work.plan, config, tmp_path) for pair in store.all()
    ]
    assert [(key, value.value) for key, value in found] == [("x", 1)]
