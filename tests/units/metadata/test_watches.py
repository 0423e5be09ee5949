from __future__ import annotations

from jesenska.metadata.tree_operations import OPEN_ACL, AclSet, DataSet, NodeCreated, NodeDeleted
from jesenska.metadata.watches import EventType, Watches, WatchEvent


def created(path: str) -> NodeCreated:
    return NodeCreated(path, b"", OPEN_ACL, 0)


def test_a_data_watch_hears_creation_change_and_deletion_each_once() -> None:
    watches: Watches[str] = Watches()
    for change, kind in (
        (created("/a"), EventType.NODE_CREATED),
        (DataSet("/a", b"", 1), EventType.NODE_DATA_CHANGED),
        (NodeDeleted("/a"), EventType.NODE_DELETED),
    ):
        watches.watch_data("/a", "w")
        assert watches.fired([change]) == [("w", WatchEvent(kind, "/a"))]
        assert watches.fired([change]) == []
    assert len(watches) == 0


def test_a_child_watch_hears_children_come_and_go_and_the_nodes_own_end() -> None:
    watches: Watches[str] = Watches()
    for change, event in (
        (created("/a/b"), WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/a")),
        (NodeDeleted("/a/b"), WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/a")),
        (NodeDeleted("/a"), WatchEvent(EventType.NODE_DELETED, "/a")),
    ):
        watches.watch_children("/a", "w")
        assert (
            watches.fired(
                [DataSet("/a", b"", 1), AclSet("/a", OPEN_ACL, 1), DataSet("/a/b", b"", 1), created("/a/b/c")]
            )
            == []
        )
        assert watches.fired([change]) == [("w", event)]


def test_children_of_the_root_are_watched_at_the_root() -> None:
    watches: Watches[str] = Watches()
    watches.watch_children("/", "w")
    assert watches.fired([created("/a")]) == [("w", WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/"))]


def test_one_who_watches_data_and_children_hears_of_a_deletion_once() -> None:
    watches: Watches[str] = Watches()
    watches.watch_data("/a", "w")
    watches.watch_children("/a", "w")
    watches.watch_children("/", "other")
    assert watches.fired([NodeDeleted("/a")]) == [
        ("w", WatchEvent(EventType.NODE_DELETED, "/a")),
        ("other", WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/")),
    ]
    assert len(watches) == 0


def test_asking_twice_is_hearing_once_and_several_hear_each() -> None:
    watches: Watches[str] = Watches()
    watches.watch_data("/a", "w")
    watches.watch_data("/a", "w")
    watches.watch_data("/a", "v")
    assert [watcher for watcher, _ in watches.fired([DataSet("/a", b"", 1), DataSet("/a", b"", 2)])] == ["w", "v"]


def test_one_who_is_forgotten_hears_nothing_and_leaves_nothing_behind() -> None:
    watches: Watches[str] = Watches()
    watches.watch_data("/a", "w")
    watches.watch_children("/a", "w")
    watches.watch_children("/a", "v")
    watches.forget("w")
    watches.forget("never asked")
    assert [watcher for watcher, _ in watches.fired([NodeDeleted("/a")])] == ["v"]
    assert watches.watchers() == []
