"""The tree that is rebuilt from inventories, and from a backup if there is one."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.interchange.inventory import Inventory, Replica, decode, encode
from jesenska.interchange.nodes import Node
from jesenska.interchange.rebuilding import Rebuilt, raised, rebuild
from jesenska.metadata import paths
from jesenska.metadata.nodes import (
    PartitionStateNode,
    ProducerIdBlock,
    TopicNode,
    decode_cluster_id,
    decode_config,
    decode_controller_epoch,
    encode_cluster_id,
    encode_config,
    encode_controller_epoch,
)

_ID, _OLD_ID, _NEW_ID = (uuid.UUID(int=number) for number in (77, 78, 79))


def _inventory(
    broker_id: int, replicas: Mapping[str, Replica], *, cluster: str = "one", producer_id: int = -1, compacted: str = ""
) -> Inventory:
    held = {
        TopicPartition(name.rpartition("-")[0], int(name.rpartition("-")[2])): replica
        for name, replica in replicas.items()
    }
    return Inventory(cluster, broker_id, held, producer_id, frozenset(compacted.split()))


def _replica(end: int, last_epoch: int = 4, topic_id: uuid.UUID | None = _ID, newest_epoch: int = -1) -> Replica:
    return Replica(topic_id, 0, end, last_epoch, max(newest_epoch, last_epoch))


def _rebuilt(*inventories: Inventory, **more: Any) -> Rebuilt:
    return rebuild(inventories, lambda: _NEW_ID, **more)


def _topic(built: Rebuilt, name: str = "t") -> TopicNode:
    return TopicNode.decode(built.nodes[paths.topic(name)].data or b"")


def _state(built: Rebuilt, number: int = 0, name: str = "t") -> PartitionStateNode:
    return PartitionStateNode.decode(built.nodes[paths.partition_state(name, number)].data or b"")


def _settings(built: Rebuilt, name: str) -> dict[str, str]:
    return decode_config(built.nodes[paths.topic_config(name)].data or b"")


def _backup(replicas: Mapping[int, tuple[int, ...]], topic_id: uuid.UUID = _ID) -> dict[str, Node]:
    nodes = {
        paths.CLUSTER_ID: Node(encode_cluster_id("one")),
        paths.CONTROLLER_EPOCH: Node(encode_controller_epoch(12)),
        paths.PRODUCER_ID_BLOCK: Node(ProducerIdBlock(1, 5000, 5999).encode()),
        paths.topic("t"): Node(TopicNode(replicas, topic_id).encode()),
        paths.topic_config("t"): Node(encode_config({"retention.ms": "5"})),
        "/config/users/anna": Node(encode_config({"producer_byte_rate": "1"})),
        "/brokers/ids/9": Node(b"{}"),
    }
    for number, brokers in replicas.items():
        nodes[paths.partition_state("t", number)] = Node(PartitionStateNode(brokers[0], 7, brokers, 12).encode())
    return nodes


def test_who_goes_furthest_in_the_newest_epoch_leads_and_who_goes_as_far_is_in_sync() -> None:
    """Broker 1 led once, and was cut off with records that no other broker has."""
    ends = {1: _replica(90, last_epoch=3), 2: _replica(50), 3: _replica(49), 4: _replica(50)}
    built = _rebuilt(*(_inventory(broker, {"t-0": replica}) for broker, replica in ends.items()))
    assert _topic(built).replicas == {0: (1, 2, 3, 4)}
    state = _state(built)
    assert (state.leader, set(state.isr)) == (2, {2, 4})
    assert (built.topics, built.partitions) == (1, 1)


def test_epochs_and_producer_ids_go_on_above_all_that_were_seen() -> None:
    built = _rebuilt(
        _inventory(1, {"t-0": _replica(5, last_epoch=4, newest_epoch=9)}, producer_id=4012),
        _inventory(2, {"t-0": _replica(5, last_epoch=4)}, producer_id=70),
    )
    assert _state(built).leader_epoch > 9
    assert ProducerIdBlock.decode(built.nodes[paths.PRODUCER_ID_BLOCK].data or b"").first > 4012
    assert decode_cluster_id(built.nodes[paths.CLUSTER_ID].data or b"") == "one"


def test_a_partition_without_records_goes_on_above_what_another_one_has_heard_of() -> None:
    """It had an epoch of an earlier rebuild, which is not in its own log."""
    built = _rebuilt(_inventory(1, {"t-0": _replica(9, last_epoch=1003), "t-1": _replica(0, last_epoch=-1)}))
    assert _state(built, 1).leader_epoch == _state(built).leader_epoch == 2003


def test_epochs_go_on_above_those_of_the_backup() -> None:
    backup = _backup({0: (1,)}) | {paths.partition_state("t", 0): Node(PartitionStateNode(1, 2700, (1,), 12).encode())}
    assert _state(_rebuilt(_inventory(1, {"t-0": _replica(9, last_epoch=3)}), backup=backup)).leader_epoch == 3700


def test_preferred_leaders_are_spread() -> None:
    built = _rebuilt(*(_inventory(broker, {f"t-{number}": _replica(5) for number in range(6)}) for broker in (1, 2, 3)))
    assert [replicas[0] for replicas in _topic(built).replicas.values()] == [1, 2, 3, 1, 2, 3]
    assert [_state(built, number).leader for number in range(6)] == [1, 2, 3, 1, 2, 3]


def test_settings_that_nothing_tells_delete_nothing() -> None:
    internal = dict.fromkeys(("__consumer_offsets-0", "__transaction_state-0"), _replica(5))
    built = _rebuilt(_inventory(1, {"t-0": _replica(5), "accounts-0": _replica(5), **internal}, compacted="accounts"))
    assert _settings(built, "t") == {"retention.ms": "-1"}
    assert _settings(built, "accounts") == {"cleanup.policy": "compact"}
    assert _settings(built, "__consumer_offsets")["cleanup.policy"] == "compact"
    assert _settings(built, "__transaction_state")["cleanup.policy"] == "compact"
    (note,) = built.notes
    assert "accounts, t" in note
    assert "__" not in note


def test_a_topic_that_was_deleted_while_its_broker_was_away_is_left_out_and_told() -> None:
    built = _rebuilt(
        _inventory(1, {"t-0": _replica(5)}),
        _inventory(2, {"t-0": _replica(5)}),
        _inventory(3, {"t-0": _replica(900, topic_id=_OLD_ID)}),
    )
    assert (_topic(built).topic_id, _topic(built).replicas) == (_ID, {0: (1, 2)})
    assert "Broker 3 still has another topic of the name t, which was deleted: it is left out." in built.notes


def test_a_directory_that_names_no_topic_id_gets_one() -> None:
    assert _topic(_rebuilt(_inventory(1, {"t-0": _replica(5, topic_id=None)}))).topic_id == _NEW_ID
    assert _topic(
        _rebuilt(_inventory(1, {"t-0": _replica(5, topic_id=None)}), _inventory(2, {"t-0": _replica(5)}))
    ).replicas == {0: (1, 2)}


def test_partitions_that_nobody_holds_are_refused_unless_they_may_begin_empty() -> None:
    inventories = (_inventory(1, {"t-0": _replica(5), "t-2": _replica(5)}), _inventory(2, {"t-0": _replica(5)}))
    with pytest.raises(
        JesenskaError, match=r"^No directory holds t-1: give the inventories of all brokers, or .*--allow-missing.$"
    ):
        _rebuilt(*inventories)
    built = _rebuilt(*inventories, allow_missing=True)
    assert _topic(built).replicas == {0: (1, 2), 1: (2, 1), 2: (1,)}
    assert paths.partition_state("t", 1) not in built.nodes
    assert "No directory holds t-1, which begins empty." in built.notes


def test_a_backup_gives_settings_the_order_of_replicas_and_what_is_not_in_logs() -> None:
    built = _rebuilt(
        _inventory(1, {"t-0": _replica(5)}), _inventory(2, {"t-0": _replica(6)}), backup=_backup({0: (2, 1)})
    )
    assert _topic(built).replicas == {0: (2, 1)}
    assert _settings(built, "t") == {"retention.ms": "5"}
    assert "/config/users/anna" in built.nodes
    assert "/brokers/ids/9" not in built.nodes
    assert decode_controller_epoch(built.nodes[paths.CONTROLLER_EPOCH].data or b"") > 12
    assert ProducerIdBlock.decode(built.nodes[paths.PRODUCER_ID_BLOCK].data or b"").first > 5999
    assert (_state(built).leader, _state(built).isr) == (2, (2,))
    assert built.notes == []


def test_a_broker_without_an_inventory_keeps_its_place_but_is_not_in_sync() -> None:
    built = _rebuilt(_inventory(1, {"t-0": _replica(5)}), backup=_backup({0: (3, 1)}))
    assert _topic(built).replicas == {0: (3, 1)}
    assert (_state(built).leader, _state(built).isr) == (1, (1,))


def test_replicas_that_were_moved_since_the_backup_are_where_they_are() -> None:
    held = {"t-0": _replica(5)}
    built = _rebuilt(_inventory(1, {}), _inventory(2, held), _inventory(3, held), backup=_backup({0: (1, 2)}))
    assert _topic(built).replicas == {0: (2, 3)}


def test_partitions_that_were_added_since_the_backup_are_there() -> None:
    built = _rebuilt(_inventory(1, {"t-0": _replica(5), "t-1": _replica(5)}), backup=_backup({0: (1,)}))
    assert _topic(built).replicas == {0: (1,), 1: (1,)}


def test_topics_that_were_deleted_since_the_backup_are_left_out_and_told() -> None:
    built = _rebuilt(_inventory(1, {"other-0": _replica(5)}), backup=_backup({0: (1,)}))
    assert [path for path in built.nodes if path.endswith("/t")] == []
    assert any(note.startswith("Topics of the backup that are in no directory are left out") for note in built.notes)


def test_a_topic_that_was_made_again_since_the_backup_does_not_get_the_old_settings() -> None:
    built = _rebuilt(_inventory(1, {"t-0": _replica(5)}), backup=_backup({0: (3, 1)}, topic_id=_OLD_ID))
    assert (_topic(built).topic_id, _topic(built).replicas) == (_ID, {0: (1,)})
    assert _settings(built, "t") == {"retention.ms": "-1"}


@pytest.mark.parametrize(
    ("inventories", "backup", "says"),
    [
        (
            [_inventory(1, {}), _inventory(2, {}, cluster="two")],
            None,
            "The directories belong to different clusters (one, two): name those of one.",
        ),
        ([_inventory(1, {}), _inventory(1, {})], None, "Broker 1 has two inventories"),
        (
            [_inventory(1, {}, cluster="two")],
            _backup({0: (1,)}),
            "The backup is of cluster one, and the directories are of cluster two",
        ),
        (
            [_inventory(1, {})],
            _backup({0: (1,)}) | {paths.topic("t"): Node(b"no")},
            "The node /brokers/topics/t of the backup cannot be read",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    inventories: list[Inventory], backup: dict[str, Node] | None, says: str
) -> None:
    with pytest.raises(JesenskaError) as refused:
        _rebuilt(*inventories, backup=backup)
    assert says in str(refused.value)


def test_a_tree_that_is_put_back_goes_on_above_what_it_knows() -> None:
    backup = _backup({0: (2, 1)})
    changed = raised(backup)
    state = PartitionStateNode.decode(changed[paths.partition_state("t", 0)].data or b"")
    assert (state.leader, state.isr, state.leader_epoch > 7) == (2, (2, 1), True)
    assert decode_controller_epoch(changed[paths.CONTROLLER_EPOCH].data or b"") > 12
    assert ProducerIdBlock.decode(changed[paths.PRODUCER_ID_BLOCK].data or b"").first > 5999
    assert changed[paths.topic("t")] == backup[paths.topic("t")]


_NUMBERS = st.integers(0, 2**31 - 1)
_OFFSETS = st.integers(0, 2**63 - 1)
_REPLICAS = st.builds(
    lambda topic_id, offsets, last, newest: Replica(topic_id, min(offsets), max(offsets), last, newest),
    st.none() | st.uuids(version=4),
    st.tuples(_OFFSETS, _OFFSETS),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**31 - 1),
)
_NAMES = st.from_regex(r"\A[a-zA-Z0-9_-]{1,20}\Z")


@given(
    st.dictionaries(st.builds(TopicPartition, _NAMES, _NUMBERS), _REPLICAS, max_size=5),
    _NUMBERS,
    st.integers(-1, 2**63 - 1),
    st.frozensets(_NAMES),
)
def test_an_inventory_is_read_as_it_was_written(
    replicas: dict[TopicPartition, Replica], broker_id: int, producer_id: int, compacted: frozenset[str]
) -> None:
    inventory = Inventory("BkqKvcOWQuuOhwNvbYx_og", broker_id, replicas, producer_id, compacted)
    assert decode(encode(inventory), "it") == inventory


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is not an inventory: make one with jesenska tree inventory"),
        ("[" * 100_000, "it is not an inventory"),
        ('{"format":"jesenska-inventory","version":2}', "it is an inventory of a later release"),
        ('{"format":"jesenska-inventory","version":1}', "it is a damaged inventory ('cluster')"),
    ],
)
def test_what_is_no_inventory_is_refused(text: str, says: str) -> None:
    with pytest.raises(JesenskaError) as refused:
        decode(text, "it")
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "../etc"}, {"topic": 5}, {"partition": -1}, {"partition": True}, {"partition": 1 << 31}, {"start": 9}, {"end": -1}, {"topicId": "x"},  # noqa: E501
        {"lastEpoch": -2}, {"newestEpoch": None},
    ],
)  # fmt: skip
def test_values_that_cannot_be_are_refused(change: dict[str, Any]) -> None:
    said = json.loads(encode(_inventory(1, {"t-0": _replica(5)})))
    said["partitions"][0] |= change
    with pytest.raises(JesenskaError, match="damaged inventory"):
        decode(json.dumps(said), "it")
