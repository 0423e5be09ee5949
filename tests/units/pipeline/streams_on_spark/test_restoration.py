"""The checks that a state is lost, and of the owner of the group's offsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.group_administration import OffsetAndMetadata
from jesenska.pipeline.connector.options import READ_BY_A_QUERY
from jesenska.pipeline.streams import Serdes, SessionWindows, StreamsBuilder, StreamsConfig, StreamsError, Suppressed
from jesenska.pipeline.streams_on_spark.application import Application
from jesenska.pipeline.streams_on_spark.cutting import cut
from jesenska.pipeline.streams_on_spark.queries.group_offsets import (
    belongs_to_others,
    is_of_another_topology,
    read_by_anybody,
    set_by_a_tool,
    text_of,
)
from jesenska.pipeline.streams_on_spark.queries.restoration import is_gone, was_begun_without_changelogs

STRINGS: dict[str, Any] = {"key": Serdes.string(), "value": Serdes.string()}
PARTITION, OTHER = TopicPartition("lines", 0), TopicPartition("lines", 1)
READ = {PARTITION: OffsetAndMetadata(7, -1, text_of("one", "counts"))}
SET = {PARTITION: OffsetAndMetadata(7, -1, "")}
CHANGELOG = {"shop-counts-changelog": 1}


def application(*, with_logging: bool = True, with_store: bool = True, suppressed: bool = False) -> Application:
    builder = StreamsBuilder()
    stream = builder.stream("lines", **STRINGS)
    if suppressed:
        stream.group_by_key().windowed_by(SessionWindows(5, grace=0)).count(store="counts").suppress(
            Suppressed.until_window_closes().with_name("held")
        )
    elif with_store:
        stream.group_by_key().count(store="counts")
    else:
        stream.to("copy")
    topology = builder.build()
    config = StreamsConfig({"application.id": "shop", "bootstrap.servers": "127.0.0.1:9092", "state.dir": "state"})
    return Application(topology, config, tuple(cut(topology, "shop")), None, with_logging)


def test_an_application_without_offsets_begins_as_a_new_one() -> None:
    assert not is_gone(application(), {}, {})
    assert not is_gone(application(with_logging=False), {}, {})


def test_stores_with_changelog_topics_are_restored() -> None:
    assert is_gone(application(), READ, CHANGELOG)


def test_an_application_without_stores_goes_on_at_the_offsets() -> None:
    assert is_gone(application(with_store=False), READ, {})


@pytest.mark.parametrize(
    ("made", "topics", "reason"),
    [
        ({"with_logging": False}, {}, "the store counts has no changelog topic"),
        ({}, {}, "the topic shop-counts-changelog does not exist"),
        ({"suppressed": True}, CHANGELOG, "the store held.* has no changelog topic"),
    ],
)
def test_what_cannot_be_restored_is_refused(made: dict[str, bool], topics: dict[str, int], reason: str) -> None:
    with pytest.raises(
        StreamsError, match=rf"shop has run before, .*{reason}: set state\.dir .*kafka-streams-application-reset"
    ):
        is_gone(application(**made), READ, topics)


def test_offsets_that_a_tool_has_set_say_where_to_begin() -> None:
    assert not is_gone(application(with_logging=False), SET, {})
    assert not is_gone(application(), SET, {}), "the tool has deleted the changelog topics"
    assert set_by_a_tool({**READ, **SET}) == {PARTITION: 7}
    assert set_by_a_tool(READ) == {}


def test_old_releases_of_kafka_streams_commit_without_a_text() -> None:
    assert is_gone(application(), SET, CHANGELOG)


def test_the_text_of_an_offset_says_who_has_counted() -> None:
    assert read_by_anybody(READ) and not read_by_anybody(SET)
    mine = text_of("one", "counts")
    assert not belongs_to_others({**READ, OTHER: OffsetAndMetadata(7, -1, READ_BY_A_QUERY)}, mine)
    assert belongs_to_others(READ, text_of("two", "counts"))
    assert belongs_to_others({**READ, OTHER: OffsetAndMetadata(7, -1, "AgAAAXo=")}, mine), "that is Kafka Streams"


def test_one_id_for_two_topologies_is_known() -> None:
    assert is_of_another_topology(READ, text_of("two", "sums"))
    assert not is_of_another_topology(READ, text_of("two", "counts"))
    assert not is_of_another_topology({**SET, OTHER: OffsetAndMetadata(7, -1, "AgAAAXo=")}, text_of("two", "counts"))


def test_a_state_that_was_begun_without_changelog_topics_is_known(tmp_path: Path) -> None:
    assert not was_begun_without_changelogs(tmp_path)
    planned = tmp_path / "0" / "checkpoint" / "offsets" / "0"
    planned.parent.mkdir(parents=True)
    planned.touch()
    assert was_begun_without_changelogs(tmp_path)
    (tmp_path / "changelogs").write_text("begun")
    assert not was_begun_without_changelogs(tmp_path)
