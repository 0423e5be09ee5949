"""The check that a tree is older than the logs of the broker that starts with it."""

from __future__ import annotations

import uuid

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.replication.older_tree import Heard, newer_than_tree

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
ID, OTHER_ID = uuid.UUID(int=7), uuid.UUID(int=8)


def test_a_log_that_has_heard_of_a_newer_epoch_is_newer() -> None:
    assert newer_than_tree({FIRST: Heard(ID, 4)}, {FIRST: Heard(ID, 5)}) == FIRST


@pytest.mark.parametrize("epoch", [-1, 3, 4])
def test_a_log_that_has_not_is_not(epoch: int) -> None:
    """An election after which nothing was written is not in any follower's log."""
    assert newer_than_tree({FIRST: Heard(ID, 4)}, {FIRST: Heard(ID, epoch)}) is None


def test_the_first_one_is_told() -> None:
    in_tree = {SECOND: Heard(ID, 4), FIRST: Heard(ID, 4)}
    assert newer_than_tree(in_tree, {SECOND: Heard(ID, 5), FIRST: Heard(ID, 5)}) == FIRST
    assert newer_than_tree(in_tree, {SECOND: Heard(ID, 5), FIRST: Heard(ID, 4)}) == SECOND


def test_a_topic_that_was_made_again_begins_its_epochs_anew() -> None:
    assert newer_than_tree({FIRST: Heard(ID, 0)}, {FIRST: Heard(OTHER_ID, 5)}) is None


@pytest.mark.parametrize(("in_tree", "in_log"), [(None, None), (ID, None), (None, ID)])
def test_nothing_is_concluded_without_an_id(in_tree: uuid.UUID | None, in_log: uuid.UUID | None) -> None:
    assert newer_than_tree({FIRST: Heard(in_tree, 0)}, {FIRST: Heard(in_log, 5)}) is None


def test_what_only_one_side_has_says_nothing() -> None:
    """A newer topic is missing in the tree, and a topic in the tree may have no log here."""
    assert newer_than_tree({FIRST: Heard(ID, 4)}, {SECOND: Heard(ID, 5)}) is None
