"""The check that Spark's checkpoint belongs to the state beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.group_administration import OffsetAndMetadata
from jesenska.pipeline.streams import Serdes, StreamsBuilder, StreamsConfig, StreamsError
from jesenska.pipeline.streams_on_spark.application import Application
from jesenska.pipeline.streams_on_spark.cutting import cut
from jesenska.pipeline.streams_on_spark.queries import checkpoints
from jesenska.pipeline.streams_on_spark.stores.state_file import StateFile, bound

PARTITION = TopicPartition("lines", 0)


class Checked:
    """An application with one sub-topology, and the contents of its checkpoint and its group."""

    def __init__(self, directory: Path, *, with_store: bool = False) -> None:
        builder = StreamsBuilder()
        stream = builder.stream("lines", key=Serdes.string(), value=Serdes.string())
        if with_store:
            stream.group_by_key().count(store="counts")
        else:
            stream.to("copy")
        topology = builder.build()
        config = StreamsConfig(
            {"application.id": "shop", "bootstrap.servers": "127.0.0.1:9092", "state.dir": str(directory)}
        )
        self.application = Application(topology, config, tuple(cut(topology, "shop")), None, True)
        self.part = self.application.parts[0]
        self.checkpoint = self.application.directory / "0" / "checkpoint"

    def planned(self, number: int, end: int, *, done: bool = True) -> None:
        for name, text in (
            ("offsets", f'v1\n{{}}\n{{"lines": {{"0": {end}}}}}'),
            *([("commits", "v1")] if done else []),
        ):
            (self.checkpoint / name).mkdir(parents=True, exist_ok=True)
            (self.checkpoint / name / str(number)).write_text(text)
            (self.checkpoint / name / f".{number}.crc").touch()

    def check(self, told: int | None, *, text: str = "mine", begin: int | None = None) -> None:
        offsets = {} if told is None else {PARTITION: OffsetAndMetadata(told, -1, text)}
        checkpoints.check(self.application, self.part, offsets, "mine", {} if begin is None else {PARTITION: begin})


@pytest.fixture
def checked(tmp_path: Path) -> Checked:
    directory = tmp_path / "shop"
    directory.mkdir()
    (directory / "id").write_text("0123456789abcdef\nshop")
    made = Checked(tmp_path)
    checkpoints.give_id(made.application, made.part)
    return made


def test_a_query_that_has_not_run_has_told_nothing(checked: Checked) -> None:
    checked.check(None)
    checked.check(7, text="")  # a tool has set it
    checked.check(7, begin=7)  # a restored state
    with pytest.raises(
        StreamsError,
        match=r"checkpoint \S+ is gone, but lines-0 was read up to offset 7 with this checkpoint: put the",
    ):
        checked.check(7)
    with pytest.raises(StreamsError, match="is gone, but lines-0 was read up to offset 7"):
        checked.check(7, begin=5)


def test_the_group_and_the_checkpoint_say_the_same(checked: Checked) -> None:
    for number, end in ((9, 900), (10, 1000)):
        checked.planned(number, end)
    checked.check(1000)
    with pytest.raises(StreamsError, match="has continued with another state"):
        checked.check(1001)
    with pytest.raises(
        StreamsError, match="has read lines-0 up to offset 1000, but the application has read it up to 999, so the"
    ):
        checked.check(999)
    checked.planned(11, 1100, done=False)
    for told in (1000, 1100):  # before and after the group's offsets were set
        checked.check(told)
    with pytest.raises(StreamsError, match="so the checkpoint belongs to another state"):
        checked.check(1050)


def test_a_checkpoint_of_another_state_is_refused(checked: Checked) -> None:
    checked.planned(0, 5)
    for text in (json.dumps({"id": "another"}), "{}", "[", ""):
        (checked.checkpoint / "metadata").write_text(text)
        with pytest.raises(StreamsError, match="does not belong to the state in"):
            checked.check(5)
    (checked.checkpoint / "metadata").unlink()
    with pytest.raises(StreamsError, match="metadata, which says to which state the checkpoint belongs, is missing"):
        checked.check(5)


def test_a_checkpoint_of_a_state_that_does_not_say_whose_parts_are_goes_on(checked: Checked) -> None:
    """The state was made before parts had owners."""
    (checked.application.directory / "id").write_text("0123456789abcdef")
    checked.planned(0, 5)
    (checked.checkpoint / "metadata").write_text(json.dumps({"id": "Spark's own"}))
    checked.check(5)
    checked.check(3)


@pytest.mark.parametrize("missing", ["offsets", "commits"])
def test_a_checkpoint_of_which_a_part_is_gone(checked: Checked, missing: str) -> None:
    for number in range(3):
        checked.planned(number, 100 * number)
    for path in (checked.checkpoint / missing).iterdir():
        path.unlink()
    if missing == "commits":
        checked.check(200)  # Spark runs the last micro-batch again
    else:
        with pytest.raises(
            StreamsError, match=r"has lost files \(the last micro-batch is none in offsets, but 2 in commits\)"
        ):
            checked.check(200)
    checked.planned(0, 0)
    if missing == "commits":
        with pytest.raises(StreamsError, match=r"\(the last micro-batch is 2 in offsets, but 0 in commits\)"):
            checked.check(200)


def test_state_files_are_looked_at_before_a_query_begins(checked: Checked, tmp_path: Path) -> None:
    with_store = Checked(tmp_path, with_store=True)
    path = with_store.application.directory / "0" / "stores" / "0.state"

    def write(version: int, end: int, start: int | None) -> None:
        ends, starts = {PARTITION: end}, None if start is None else {PARTITION: start}
        binding: dict[int, Any] = dict(checkpoints.bindings(with_store.application, with_store.part, [0], starts, ends))
        with bound(path, binding[0]), StateFile(path, version):
            pass

    write(0, 5, None)
    with_store.planned(0, 5, done=False)
    with_store.check(None)
    with_store.planned(0, 5)
    with_store.check(5)
    with_store.planned(1, 8, done=False)
    with_store.check(5)
    write(1, 8, 5)
    with_store.check(8)
    path.rename(path.with_name("1.state"))
    with pytest.raises(StreamsError, match=r"0\.state is gone"):
        with_store.check(8)
    path.with_name("1.state").rename(path)
    with_store.planned(1, 8)
    with_store.planned(2, 9)
    with pytest.raises(StreamsError, match="has lines up to offset 8, but the next micro-batch begins at 9"):
        with_store.check(9)
    path.write_bytes(b"not a database")
    with pytest.raises(StreamsError, match=r"0\.state"):
        with_store.check(9)
    assert not checkpoints.bindings(checked.application, checked.part, [0], None, {})
