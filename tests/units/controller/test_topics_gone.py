"""A broker finds the deleted topics whose deletion it has missed."""

from __future__ import annotations

from jesenska.controller.context import TopicView
from jesenska.controller.effects import TopicPartitions
from jesenska.controller.orders.missed_deletions import TopicsGone
from jesenska.controller.orders.requests import Metadata, Orderer
from jesenska.metadata.nodes import TopicNode

ORDERER = Orderer(1, 5, 70)


def _told(*names: str, gone: tuple[str, ...] = (), is_all: bool = False) -> Metadata:
    return Metadata(
        tuple(TopicPartitions(TopicView(name, TopicNode({0: (1,)}, None)), (0,)) for name in names),
        gone,
        {},
        {},
        is_all,
    )


def test_what_no_part_of_all_topics_has_named_is_gone() -> None:
    gone = TopicsGone()
    assert gone.gone_after(ORDERER, _told("a", is_all=True), ["a", "b", "ghost"]) == ()
    assert gone.gone_after(ORDERER, _told("b", is_all=True), ["a", "b", "ghost"]) == (), "there may be more parts"
    assert gone.gone_after(ORDERER, _told(), ["a", "b", "ghost"]) == ("ghost",)
    assert gone.gone_after(ORDERER, _told(), ["a", "b", "later"]) == (), "only parts of all say what is gone"


def test_a_topic_that_is_told_behind_the_last_part_is_there() -> None:
    gone = TopicsGone()
    gone.gone_after(ORDERER, _told("a", is_all=True), ["a"])
    assert gone.gone_after(ORDERER, _told("new"), ["a", "new"]) == ()


def test_where_there_is_no_topic_all_are_gone() -> None:
    gone = TopicsGone()
    gone.gone_after(ORDERER, _told(is_all=True), ["ghost"])
    assert gone.gone_after(ORDERER, _told(gone=("other",)), ["ghost", "other"]) == ("other", "ghost")


def test_a_part_that_is_sent_again_changes_nothing() -> None:
    gone = TopicsGone()
    for _ in range(2):
        gone.gone_after(ORDERER, _told("a", is_all=True), ["a", "b", "ghost"])
    gone.gone_after(ORDERER, _told("b", is_all=True), ["a", "b", "ghost"])
    assert gone.gone_after(ORDERER, _told(), ["a", "b", "ghost"]) == ("ghost",)


def test_parts_of_another_controller_or_for_another_registration_do_not_count() -> None:
    for other in (Orderer(2, 6, 70), Orderer(1, 5, 71)):
        gone = TopicsGone()
        gone.gone_after(ORDERER, _told("a", is_all=True), ["a", "b"])
        assert gone.gone_after(other, _told(), ["a", "b"]) == (), "the others were not told"
        gone.gone_after(other, _told("b", is_all=True), ["a", "b"])
        assert gone.gone_after(other, _told(), ["a", "b"]) == ("a",)


def test_what_is_told_of_other_topics_hides_none() -> None:
    gone = TopicsGone()
    assert gone.gone_after(ORDERER, _told("a"), ["a", "b"]) == ()
    assert gone.gone_after(ORDERER, _told("a", gone=("b",)), ["a", "b"]) == ("b",)
