"""Plans of topics, executed on a real tree. Sentences are those of brokers of 4.3.1."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from jesenska.base.clock import ManualClock
from jesenska.base.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicException,
    KafkaError,
    PolicyViolationError,
    ReassignmentInProgressError,
    TopicAlreadyExistsError,
    TopicDeletionDisabledError,
    UnknownTopicOrPartitionError,
)
from jesenska.config.layers import BrokerConfig
from jesenska.config.listeners import Endpoint
from jesenska.controller.context import ControllerContext, TopicView, view_of
from jesenska.controller.plans.topics import (
    TopicCreation,
    TopicPlan,
    duplicates,
    forget_topic,
    plan_creation,
    plan_deletion,
    plan_deletion_end,
    plan_expansion,
)
from jesenska.controller.reading import load
from jesenska.metadata import paths
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.nodes import BrokerRegistration, TopicNode, encode_config
from jesenska.metadata.registration import become_controller, ensure_paths, register_broker
from jesenska.metadata.store import Store
from jesenska.metadata.tree import Multi, Tree
from jesenska.metadata.tree_operations import BadVersionError, Create, MultiError, Operation, SetData

CONFIG = BrokerConfig({"num.partitions": "2"})
TOPIC_ID = uuid.UUID(int=77)
NODE = BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),), 5)


class Cluster:
    """The tree of a broker that has started and is controller, and the view of it."""

    def __init__(self, brokers: Sequence[int] = (0,), topics: Sequence[str] = ()) -> None:
        async def start() -> Tree:
            embedded = EmbeddedTree.simulated(ManualClock())
            store: Store = await embedded.session()
            await ensure_paths(store)
            for broker in brokers:
                await register_broker(store, broker, NODE)
            await become_controller(store, brokers[0], 5)
            return embedded.tree

        self.tree = asyncio.run(start())
        (self.session,) = self.tree.sessions
        self.view = view_of(self.tree)
        for name in topics:
            self.create(TopicCreation(name))

    def do(self, operations: Sequence[Operation]) -> None:
        self.tree.decide(Multi(self.session, tuple(operations)), 10)

    def plan(self, topic: TopicCreation, start: int = 0, config: BrokerConfig = CONFIG) -> TopicPlan:
        return plan_creation(self.view, topic, config, topic_id=TOPIC_ID, start_index=start, shift=start)

    def create(self, topic: TopicCreation, start: int = 0) -> TopicPlan:
        plan = self.plan(topic, start)
        self.done(plan)
        return plan

    def done(self, plan: TopicPlan) -> None:
        self.do(plan.operations)
        plan.apply(self.view)
        assert view_of(self.tree) == self.view

    def delete(self, name: str) -> None:
        self.do(plan_deletion(self.view, name, CONFIG))
        self.view = view_of(self.tree)
        self.do(plan_deletion_end(self.view, name))
        forget_topic(self.view, name)
        assert view_of(self.tree) == self.view


def test_a_creation_writes_what_kafka_writes() -> None:
    cluster = Cluster([0, 7])
    cluster.create(TopicCreation("r2", 2, 2, configs={"retention.ms": "5000"}))
    assert cluster.tree.get(paths.topic("r2"))[0] == (
        b'{"partitions":{"0":[0,7],"1":[7,0]},"topic_id":"AAAAAAAAAAAAAAAAAAAATQ","adding_replicas":{},"removing_replicas":{},"version":3}'
    )
    assert (
        cluster.tree.get(paths.partition_state("r2", 1))[0]
        == b'{"controller_epoch":1,"leader":7,"version":1,"leader_epoch":0,"isr":[7,0]}'
    )
    assert cluster.tree.get(paths.topic_config("r2"))[0] == b'{"version":1,"config":{"retention.ms":"5000"}}'
    assert cluster.tree.children(paths.partitions("r2"))[0] == ["0", "1"]


def test_numbers_that_are_not_given_are_the_brokers() -> None:
    plan = Cluster().create(TopicCreation("t"))
    assert dict(plan.topic.node.replicas) == {0: (0,), 1: (0,)}
    assert plan.config.integer("retention.ms") == 604_800_000


@pytest.mark.parametrize(
    ("topic", "kind", "sentence"),
    [
        (TopicCreation(""), InvalidTopicException, "Topic name is invalid: the empty string is not allowed"),
        (TopicCreation("."), InvalidTopicException, "Topic name is invalid: '.' is not allowed"),
        (TopicCreation(".."), InvalidTopicException, "Topic name is invalid: '..' is not allowed"),
        (
            TopicCreation("a/b", configs={"nonsense": "1"}),
            InvalidTopicException,
            "Topic name is invalid: 'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'",
        ),
        (
            TopicCreation("x" * 250),
            InvalidTopicException,
            f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249",
        ),
        (TopicCreation("a_b"), InvalidTopicException, "Topic 'a_b' collides with existing topic: a.b"),
        (TopicCreation("a.b"), TopicAlreadyExistsError, "Topic 'a.b' already exists."),
        (
            TopicCreation("n", 0, 1),
            InvalidPartitionsError,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            TopicCreation("n", -2, 1),
            InvalidPartitionsError,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            TopicCreation("n", 1, 0),
            InvalidReplicationFactorError,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            TopicCreation("n", 1, -2),
            InvalidReplicationFactorError,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (TopicCreation("n", 2_000_000, 1), PolicyViolationError, "Excessively large number of partitions per request."),
        (
            TopicCreation("n", assignment={0: [0], 2: [0]}),
            InvalidReplicaAssignmentError,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            TopicCreation("n", assignment={1: [0]}),
            InvalidReplicaAssignmentError,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            TopicCreation("n", assignment={0: [0, 0]}),
            InvalidReplicaAssignmentError,
            "The manual partition assignment includes the broker 0 more than once.",
        ),
        (
            TopicCreation("n", assignment={0: [99]}),
            InvalidReplicaAssignmentError,
            "The manual partition assignment includes broker 99, but no such broker is registered.",
        ),
        (
            TopicCreation("n", assignment={0: []}),
            InvalidReplicaAssignmentError,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            TopicCreation("n", assignment={0: [0], 1: [0, 1]}),
            InvalidReplicaAssignmentError,
            "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with "
            "previous partitions, which have "
            "1 replica(s).",
        ),
        (
            TopicCreation("n", 1, assignment={0: [0]}),
            InvalidRequestError,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            TopicCreation("n", -1, 1, assignment={0: [0]}),
            InvalidRequestError,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (TopicCreation("n", configs={"nonsense": "1"}), InvalidConfigError, "Unknown topic config name: nonsense"),
        (
            TopicCreation("n", configs={"retention.ms": "x"}),
            InvalidConfigError,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            TopicCreation("n", configs={"retention.ms": None}),
            InvalidConfigError,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            TopicCreation("n", configs={"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}),
            InvalidConfigError,
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
    ],
    ids=lambda value: value.name[:10] if isinstance(value, TopicCreation) else "",
)
def test_a_creation_is_refused_in_kafkas_words(topic: TopicCreation, kind: type[KafkaError], sentence: str) -> None:
    cluster = Cluster([0, 1], ["a.b"])
    with pytest.raises(kind) as caught:
        cluster.plan(topic)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("topic", "kinds"),
    [
        (TopicCreation("a.b", 0, configs={"retention.ms": None}), (TopicAlreadyExistsError, TopicAlreadyExistsError)),
        (
            TopicCreation(".", 1, configs={"retention.ms": None}, assignment={0: [0]}),
            (InvalidTopicException, InvalidConfigError),
        ),
        (TopicCreation(".", 1, assignment={0: [0]}), (InvalidTopicException, InvalidRequestError)),
        (TopicCreation(".", 0), (InvalidTopicException, InvalidPartitionsError)),
        (TopicCreation("n", 1, 3, configs={"retention.ms": "x"}), (InvalidConfigError, InvalidReplicationFactorError)),
        (TopicCreation("a_b", assignment={0: []}), (InvalidTopicException, InvalidTopicException)),
        (
            TopicCreation("n", assignment={0: []}, configs={"retention.ms": "x"}),
            (InvalidConfigError, InvalidReplicaAssignmentError),
        ),
    ],
)
def test_which_of_several_mistakes_is_told_is_a_matter_of_the_requests_age(
    topic: TopicCreation, kinds: tuple[type[KafkaError], type[KafkaError]]
) -> None:
    cluster = Cluster([0, 1], ["a.b"])
    for as_in_zookeeper_mode, kind in enumerate(kinds):
        with pytest.raises(kind):
            cluster.plan(replace(topic, checked_as_in_zookeeper_mode=bool(as_in_zookeeper_mode)))


def test_topics_of_the_longest_name_and_internal_ones_can_be_made() -> None:
    cluster = Cluster()
    cluster.create(TopicCreation("x" * 249))
    cluster.create(TopicCreation("__consumer_offsets", configs={"cleanup.policy": "delete"}))
    assert set(cluster.view.topics) == {"x" * 249, "__consumer_offsets"}


def test_names_that_stand_twice_in_a_request_are_told_from_the_others() -> None:
    assert duplicates(["a", "b", "a", "c", "c"]) == {"a", "c"}


def test_a_plan_of_a_controller_that_was_replaced_changes_nothing() -> None:
    cluster = Cluster()
    plan = cluster.plan(TopicCreation("t"))
    cluster.do([SetData(paths.CONTROLLER_EPOCH, b"2")])
    before = cluster.tree.state()
    with pytest.raises(MultiError) as caught:
        cluster.do(plan.operations)
    assert isinstance(caught.value.error, BadVersionError)
    assert caught.value.index == 0
    assert cluster.tree.state() == before


def test_new_partitions_are_placed_as_kafka_places_them() -> None:
    cluster = Cluster([1, 5, 9])
    cluster.create(TopicCreation("t", assignment={0: [5, 9], 1: [9, 1], 2: [1, 5], 3: [5, 1]}))
    cluster.done(plan_expansion(cluster.view, "t", 11, None, CONFIG))
    # The same that Kafka 3.9.1 assigns for brokers 1, 5, 9 from the second broker on, partition 4 the first one.
    new = {number: list(cluster.view.topics["t"].node.replicas[number]) for number in range(4, 11)}
    assert new == {4: [9, 5], 5: [1, 9], 6: [5, 9], 7: [9, 1], 8: [1, 5], 9: [5, 1], 10: [9, 5]}
    cluster.done(plan_expansion(cluster.view, "t", 12, [[9, 1]], CONFIG))
    assert cluster.view.topics["t"].node.replicas[11] == (9, 1)
    assert cluster.view.topics["t"].topic_id == TOPIC_ID


def test_an_expansion_leaves_the_settings_of_a_topic_alone() -> None:
    cluster = Cluster()
    cluster.create(TopicCreation("t", 1, configs={"retention.ms": "5000"}))
    cluster.done(plan_expansion(cluster.view, "t", 2, None, CONFIG))
    assert cluster.view.configs["topics/t"].version == 0


@pytest.mark.parametrize(
    ("name", "count", "assignments", "kind", "sentence"),
    [
        ("t", 2, None, InvalidPartitionsError, "Topic already has 2 partition(s)."),
        ("t", 1, None, InvalidPartitionsError, "The topic t currently has 2 partition(s); 1 would not be an increase."),
        (
            "t",
            -1,
            None,
            InvalidPartitionsError,
            "The topic t currently has 2 partition(s); -1 would not be an increase.",
        ),
        ("absent", 2, None, UnknownTopicOrPartitionError, "This server does not host this topic-partition."),
        ("t", 2_000_000, None, PolicyViolationError, "Excessively large number of partitions per request."),
        (
            "t",
            4,
            [[0]],
            InvalidReplicaAssignmentError,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            "t",
            3,
            [[99]],
            InvalidReplicaAssignmentError,
            "The manual partition assignment includes broker 99, but no such broker is registered.",
        ),
        (
            "t",
            3,
            [[0, 0]],
            InvalidReplicaAssignmentError,
            "The manual partition assignment includes the broker 0 more than once.",
        ),
        (
            "t",
            3,
            [[]],
            InvalidReplicaAssignmentError,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            "t",
            3,
            [[0, 1]],
            InvalidReplicaAssignmentError,
            "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with "
            "previous partitions, which have "
            "1 replica(s).",
        ),
    ],
)
def test_an_expansion_is_refused_in_kafkas_words(
    name: str, count: int, assignments: list[list[int]] | None, kind: type[KafkaError], sentence: str
) -> None:
    cluster = Cluster([0, 1], ["t"])
    with pytest.raises(kind) as caught:
        plan_expansion(cluster.view, name, count, assignments, CONFIG)
    assert str(caught.value) == sentence


def test_a_topic_that_is_being_reassigned_does_not_grow() -> None:
    cluster = Cluster([0, 1], ["t"])
    node: Mapping[int, tuple[int, ...]] = {0: (0, 1), 1: (0,)}
    cluster.view.topics["t"] = TopicView("t", TopicNode(node, TOPIC_ID, {0: (1,)}, {}))
    with pytest.raises(ReassignmentInProgressError, match="'t'"):
        plan_expansion(cluster.view, "t", 5, None, CONFIG)


def test_a_deletion_leaves_nothing_and_the_name_is_free_again() -> None:
    cluster = Cluster([0], ["other"])
    before = {path for path, _ in cluster.tree.walk()}
    cluster.create(TopicCreation("t", 3, configs={"retention.ms": "5"}))
    cluster.delete("t")
    assert {path for path, _ in cluster.tree.walk()} == before
    cluster.create(TopicCreation("t", 1))
    assert cluster.view.topic_settings("t") == {}


def test_a_topic_marked_for_deletion_is_known_as_such_and_cannot_be_made_again() -> None:
    cluster = Cluster([0], ["t"])
    cluster.do(plan_deletion(cluster.view, "t", CONFIG))
    cluster.view = view_of(cluster.tree)
    assert cluster.view.topics["t"].deleting
    assert plan_deletion(cluster.view, "t", CONFIG) == ()
    with pytest.raises(TopicAlreadyExistsError, match="marked for deletion"):
        cluster.plan(TopicCreation("t"))


def test_deletion_can_be_switched_off_and_needs_a_topic() -> None:
    cluster = Cluster([0], ["t"])
    with pytest.raises(TopicDeletionDisabledError):
        plan_deletion(cluster.view, "t", BrokerConfig({"delete.topic.enable": "false"}))
    with pytest.raises(UnknownTopicOrPartitionError, match="does not host this topic-partition"):
        plan_deletion(cluster.view, "absent", CONFIG)


def test_settings_left_from_a_topic_of_the_same_name_are_replaced() -> None:
    cluster = Cluster()
    cluster.create(TopicCreation("t", configs={"retention.ms": "5"}))
    left = cluster.view.configs["topics/t"]
    cluster.delete("t")
    # A tool that wrote settings of a topic that is not there.
    cluster.tree = Cluster().tree
    (cluster.session,) = cluster.tree.sessions
    cluster.do([Create(paths.topic_config("t"), encode_config(left.settings))])
    cluster.view = view_of(cluster.tree)
    cluster.create(TopicCreation("t", configs={"segment.bytes": "1000"}))
    assert cluster.view.topic_settings("t") == {"segment.bytes": "1000"}


def test_a_view_through_a_store_is_the_view_of_the_tree() -> None:
    cluster = Cluster([0, 3], ["a", "b-c"])
    cluster.create(TopicCreation("d", 5, 2, configs={"retention.ms": "5"}))

    async def through_a_store() -> ControllerContext:
        return await load(await EmbeddedTree.simulated(ManualClock(), cluster.tree.copy()).session())

    assert asyncio.run(through_a_store()) == cluster.view == view_of(cluster.tree)
    assert cluster.view.topic_by_id(TOPIC_ID) is not None
    assert cluster.view.topic_by_id(uuid.UUID(int=1)) is None


def test_a_topic_created_without_a_count_has_the_brokers_partitions_and_replicas() -> None:
    cluster = Cluster([0, 1, 2])
    plan = cluster.plan(
        TopicCreation("t"), config=BrokerConfig({"num.partitions": "4", "default.replication.factor": "2"})
    )
    assert [len(set(replicas)) for replicas in plan.topic.node.replicas.values()] == [2, 2, 2, 2]
