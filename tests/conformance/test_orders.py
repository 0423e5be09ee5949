"""What brokers answer to the requests between them, and what they do: LeaderAndIsr, StopReplica, UpdateMetadata,
ControlledShutdown and AlterPartition, in every version. The same requests to Apache Kafka 3.9.1 and to jesenska, which
have to do the same."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import NO_UUID
from jesenska.metadata.nodes import PartitionStateNode
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import FetchResponse
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k04_leader_and_isr import LeaderAndIsrRequest
from jesenska.wire.messages.k05_stop_replica import StopReplicaRequest
from jesenska.wire.messages.k06_update_metadata import UpdateMetadataRequest
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from jesenska.wire.messages.k56_alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestBrokerState,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
)
from jesenska.wire.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from jesenska.wire.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tests.conformance.ordered import (
    BROKER,
    CONTROLLER,
    DELETED,
    LEADER_AND_ISR_BROKER_EPOCHS,
    LEADER_AND_ISR_IDS,
    NOBODY,
    OTHER,
    STOP_REPLICA_BROKER_EPOCHS,
    STOP_REPLICA_STATES,
    UPDATE_METADATA_BROKER_EPOCHS,
    UPDATE_METADATA_IDS,
    Clients,
    Live,
    Obedient,
    Ordered,
    Shown,
    State,
    Stop,
    Told,
    Topic,
    fetch_request,
    fetched,
    ordered_broker,
    until,
)
from tests.old_requests import produce
from tests.raw_connection import RawConnection
from tests.units.log.log_harness import make_batch

pytestmark = pytest.mark.conformance

_LEADER_AND_ISR, _STOP_REPLICA, _UPDATE_METADATA, _CONTROLLED_SHUTDOWN, _ALTER_PARTITION = (
    range(8),
    range(5),
    range(9),
    range(4),
    range(4),
)
_NONE = ErrorCode.NONE
_LEADS = Clients(*[_NONE] * 4)
_FOLLOWS = Clients(*[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 4)
_OFFSETS_TOPIC = "__consumer_offsets"
_RECOVERED, _RECOVERING = 0, 1
#: In Metadata: the first version with racks, offline replicas, leader epochs, ids.
_RACKS, _OFFLINE, _EPOCHS, _IDS = 1, 5, 7, 10

every_leader_and_isr = pytest.mark.parametrize("version", _LEADER_AND_ISR)
every_stop_replica = pytest.mark.parametrize("version", _STOP_REPLICA)
every_update_metadata = pytest.mark.parametrize("version", _UPDATE_METADATA)
every_controlled_shutdown = pytest.mark.parametrize("version", _CONTROLLED_SHUTDOWN)
every_alter_partition = pytest.mark.parametrize("version", _ALTER_PARTITION)


@pytest.fixture(scope="module", params=["3.9.1", "jesenska"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ordered]:
    yield from ordered_broker(request.param, tmp_path_factory.mktemp("ordered"))


@pytest.fixture
def broker(running: Ordered) -> Iterator[Ordered]:
    """A broker that the tests are controller of."""
    with RawConnection(running.bootstrap) as running.connection:
        if not running.is_ordered_by_tests():
            running.take_over()
        yield running


@pytest.fixture
def controller(running: Ordered) -> Iterator[Ordered]:
    """A broker that is controller; another one is registered, and answers nobody."""
    with RawConnection(running.bootstrap) as running.connection:
        if running.is_ordered_by_tests():
            running.give_back()
        yield running


def _led(broker: Ordered, *states: State) -> Topic:
    """A topic of which the broker has these replicas, and tells clients so."""
    topic = broker.new_topic()
    made = states or (State(),)
    assert broker.lead(7, topic, *made) == Told(_NONE, {state.number: _NONE for state in made})
    assert broker.update(8, {topic: made}, [broker.live, broker.other]) == _NONE
    return topic


# --- what is announced -----------------------------------------------------------------------------------------------


def test_requests_between_brokers_are_announced_to_everybody(broker: Ordered) -> None:
    answer = broker.connection.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    ranges = {item.api_key: range(item.min_version, item.max_version + 1) for item in answer.api_keys}
    assert [ranges[key] for key in (4, 5, 6, 7, 56)] == [
        _LEADER_AND_ISR,
        _STOP_REPLICA,
        _UPDATE_METADATA,
        _CONTROLLED_SHUTDOWN,
        _ALTER_PARTITION,
    ]
    assert ranges[67] == range(1)


# --- LeaderAndIsr: which orders are obeyed ---------------------------------------------------------------------------


@every_leader_and_isr
def test_leader_and_isr_of_an_older_controller_is_refused_whole(broker: Ordered, version: int) -> None:
    topic = broker.new_topic()
    told = broker.lead(version, topic, State(0), State(1), controller_epoch=broker.controller_epoch - 1)
    assert told == Told(ErrorCode.STALE_CONTROLLER_EPOCH, dict.fromkeys((0, 1), ErrorCode.STALE_CONTROLLER_EPOCH))
    assert not broker.directory(topic).exists()


@every_leader_and_isr
def test_leader_and_isr_of_a_newer_controller_ends_the_older_one(broker: Ordered, version: int) -> None:
    older, topic = broker.controller_epoch, broker.new_topic()
    broker.controller_epoch += 1
    assert broker.lead(version, topic, State()) == Told(_NONE, {0: _NONE})
    assert (
        broker.lead(version, topic, State(leader_epoch=1), controller_epoch=older).error
        == ErrorCode.STALE_CONTROLLER_EPOCH
    )
    assert broker.stop(4, topic, Stop(), controller_epoch=older).error == ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.update(8, {}, controller_epoch=older) == ErrorCode.STALE_CONTROLLER_EPOCH


@every_leader_and_isr
def test_leader_and_isr_for_an_earlier_registration_is_refused_whole(broker: Ordered, version: int) -> None:
    topic = broker.new_topic()
    told = broker.lead(version, topic, State(0), State(1), broker_epoch=broker.broker_epoch - 1)
    if version < LEADER_AND_ISR_BROKER_EPOCHS:
        assert told == Told(_NONE, dict.fromkeys((0, 1), _NONE))
        return
    assert told == Told(ErrorCode.STALE_BROKER_EPOCH, dict.fromkeys((0, 1), ErrorCode.STALE_BROKER_EPOCH))
    assert not broker.directory(topic).exists()


@pytest.mark.parametrize("further", [1, 1 << 40])
def test_orders_for_a_registration_that_the_broker_does_not_know_of_yet_are_obeyed(
    broker: Ordered, further: int
) -> None:
    epoch, topic = broker.broker_epoch + further, broker.new_topic()
    assert broker.lead(7, topic, State(), broker_epoch=epoch) == Told(_NONE, {0: _NONE})
    assert broker.update(8, {topic: [State()]}, broker_epoch=epoch) == _NONE
    assert broker.stop(4, topic, Stop(delete=True), broker_epoch=epoch) == Told(_NONE, {0: _NONE})


def test_orders_without_a_broker_epoch_are_for_every_registration(broker: Ordered) -> None:
    topic = broker.new_topic()
    assert broker.lead(7, topic, State(), broker_epoch=-1) == Told(_NONE, {0: _NONE})
    assert broker.update(8, {topic: [State()]}, broker_epoch=-1) == _NONE
    assert broker.stop(4, topic, Stop(delete=True), broker_epoch=-1) == Told(_NONE, {0: _NONE})


def test_the_registration_is_looked_at_before_the_controller(broker: Ordered) -> None:
    topic, controller_epoch, broker_epoch = broker.new_topic(), broker.controller_epoch - 1, broker.broker_epoch - 1
    for code in (
        broker.lead(7, topic, State(), controller_epoch=controller_epoch, broker_epoch=broker_epoch).error,
        broker.stop(4, topic, Stop(), controller_epoch=controller_epoch, broker_epoch=broker_epoch).error,
        broker.update(8, {}, controller_epoch=controller_epoch, broker_epoch=broker_epoch),
    ):
        assert code == ErrorCode.STALE_BROKER_EPOCH


# --- LeaderAndIsr: what is done --------------------------------------------------------------------------------------


@every_leader_and_isr
def test_a_partition_is_made_and_led(broker: Ordered, version: int) -> None:
    topic = broker.new_topic()
    assert broker.lead(version, topic, State(leader_epoch=3)) == Told(_NONE, {0: _NONE})
    assert broker.directory(topic).is_dir()
    named = broker.directory(topic) / "partition.metadata"
    if version >= LEADER_AND_ISR_IDS and broker.name != "jesenska":
        # Kafka answers first and writes the file soon after. Ours stands when the answer comes.
        until(named.exists, "the topic's id is not written")
    assert named.exists() == (version >= LEADER_AND_ISR_IDS)
    assert broker.update(8, {topic: [State(leader_epoch=3)]}) == _NONE
    assert broker.clients(topic) == _LEADS
    assert broker.end_offset(topic) == (_NONE, 1, 3)
    assert broker.epoch_end(topic, 3, 3) == (_NONE, 3, 1)
    assert broker.epoch_end(topic, 3, 2)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert broker.epoch_end(topic, 3, 4)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_clients_find_a_partition_once_they_are_told_of_it(broker: Ordered) -> None:
    topic = broker.new_topic()
    assert broker.lead(7, topic, State()) == Told(_NONE, {0: _NONE})
    told = broker.clients(topic)
    assert (told.produce, told.fetch) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert broker.topic_shown(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.update(8, {topic: [State()]}) == _NONE
    assert broker.clients(topic) == _LEADS


@every_leader_and_isr
def test_an_order_about_nothing_is_obeyed(broker: Ordered, version: int) -> None:
    assert broker.lead(version, broker.new_topic()) == Told(_NONE, {})


@every_leader_and_isr
def test_of_a_partition_that_stands_twice_the_last_state_counts(broker: Ordered, version: int) -> None:
    topic = broker.new_topic()
    assert broker.lead(version, topic, State(leader_epoch=1), State(leader_epoch=5)) == Told(_NONE, {0: _NONE})
    assert broker.update(8, {topic: [State(leader_epoch=5)]}) == _NONE
    assert broker.end_offset(topic) == (_NONE, 0, 5)


@every_leader_and_isr
def test_a_partition_that_others_have_is_unknown(broker: Ordered, version: int) -> None:
    topic = broker.new_topic()
    told = broker.lead(version, topic, State(0), State(1, leader=OTHER, isr=(OTHER,), replicas=(OTHER,)))
    assert told == Told(_NONE, {0: _NONE, 1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    assert [broker.directory(topic, number).exists() for number in (0, 1)] == [True, False]


@every_leader_and_isr
@pytest.mark.parametrize(
    ("leader_epoch", "code"),
    [
        (4, ErrorCode.STALE_CONTROLLER_EPOCH),
        (5, ErrorCode.STALE_CONTROLLER_EPOCH),
        (6, _NONE),
        (-1, ErrorCode.STALE_CONTROLLER_EPOCH),
    ],
)
def test_a_leader_epoch_that_is_not_newer_is_refused(
    broker: Ordered, version: int, leader_epoch: int, code: ErrorCode
) -> None:
    topic = _led(broker, State(0, leader_epoch=5), State(1, leader_epoch=5))
    told = broker.lead(version, topic, State(0, leader_epoch=leader_epoch), State(1, leader_epoch=7), new=False)
    assert told == Told(_NONE, {0: code, 1: _NONE})
    assert broker.end_offset(topic) == (_NONE, 0, max(leader_epoch, 5))


@pytest.mark.parametrize("version", [4, 5, 7])
def test_a_topic_keeps_its_id(broker: Ordered, version: int) -> None:
    topic = _led(broker)
    another = topic._replace(topic_id=uuid.uuid4())
    refused = version >= LEADER_AND_ISR_IDS
    told = broker.lead(version, another, State(leader_epoch=1))
    assert told == Told(_NONE, {0: ErrorCode.INCONSISTENT_TOPIC_ID if refused else _NONE})
    assert broker.epoch_end(topic, 0, 1)[0] == (ErrorCode.UNKNOWN_LEADER_EPOCH if refused else _NONE)
    assert topic.name in broker.directory(topic).name
    # Whoever tells no id means the one that is there.
    assert broker.lead(version, topic._replace(topic_id=NO_UUID), State(leader_epoch=2)) == Told(_NONE, {0: _NONE})
    assert broker.lead(7, topic, State(leader_epoch=3)) == Told(_NONE, {0: _NONE})


def test_a_topic_that_is_made_anew_takes_the_place_of_one_without_data(broker: Ordered) -> None:
    """The broker has deleted its data, and was not told that the topic is gone."""
    topic = _led(broker, State(leader_epoch=5))
    assert broker.update(8, {topic: [State(leader_epoch=5)]}) == _NONE
    assert broker.stop(4, topic, Stop(leader_epoch=-2, delete=True)) == Told(_NONE, {0: _NONE})
    anew = topic._replace(topic_id=uuid.uuid4())
    assert broker.lead(7, anew, State()) == Told(_NONE, {0: _NONE})
    assert broker.update(8, {anew: [State()]}) == _NONE
    assert broker.end_offset(anew) == (_NONE, 0, 0)


def test_an_id_is_looked_at_before_the_leader_epoch(broker: Ordered) -> None:
    topic = _led(broker, State(leader_epoch=5))
    assert broker.lead(7, topic._replace(topic_id=uuid.uuid4()), State(leader_epoch=4)).partitions == {
        0: ErrorCode.INCONSISTENT_TOPIC_ID
    }


@pytest.mark.parametrize("leader_epoch", [0, 1])
def test_a_topic_without_an_id_gets_the_one_that_is_told(broker: Ordered, leader_epoch: int) -> None:
    topic = broker.new_topic()
    assert broker.lead(4, topic, State()) == Told(_NONE, {0: _NONE})
    assert broker.lead(7, topic, State(leader_epoch=leader_epoch)) == Told(_NONE, {0: _NONE})
    assert broker.lead(7, topic._replace(topic_id=uuid.uuid4()), State(leader_epoch=2)).partitions == {
        0: ErrorCode.INCONSISTENT_TOPIC_ID
    }


@every_leader_and_isr
def test_a_broker_that_does_not_lead_sends_clients_away(broker: Ordered, version: int) -> None:
    led = State(isr=(BROKER, OTHER), replicas=(BROKER, OTHER))
    topic = _led(broker, led)
    assert broker.clients(topic) == _LEADS
    assert broker.lead(version, topic, led._replace(leader=OTHER, leader_epoch=1)) == Told(_NONE, {0: _NONE})
    assert broker.clients(topic) == _FOLLOWS
    assert broker.lead(version, topic, led._replace(leader_epoch=2)) == Told(_NONE, {0: _NONE})
    # What was written under the leader before may be committed: that is not known until the other one has fetched.
    assert broker.clients(topic) == _LEADS._replace(list_offsets=ErrorCode.OFFSET_NOT_AVAILABLE)


@every_leader_and_isr
@pytest.mark.parametrize("leader", [OTHER, NOBODY])
def test_a_replica_of_what_nobody_leads_that_is_up_is_made(broker: Ordered, version: int, leader: int) -> None:
    topic, missing = broker.new_topic(), State(leader=leader, leader_epoch=5, isr=(OTHER,), replicas=(OTHER, BROKER))
    assert broker.lead(version, topic, missing) == Told(_NONE, {0: _NONE})
    assert broker.update(8, {topic: [missing]}) == _NONE
    assert broker.directory(topic).is_dir()
    assert broker.clients(topic) == _FOLLOWS


def test_what_another_replica_lacks_is_committed_once_that_is_not_in_sync(broker: Ordered) -> None:
    led = State(isr=(BROKER, OTHER), replicas=(BROKER, OTHER), partition_epoch=3)
    topic = _led(broker, led)
    assert produce(broker.connection, topic.name, 8, make_batch()).error_code == _NONE
    assert broker.fetch(topic) == (_NONE, 0, 0)
    assert broker.lead(7, topic, led._replace(isr=(BROKER,), leader_epoch=1, partition_epoch=4), new=False) == Told(
        _NONE, {0: _NONE}
    )
    assert broker.fetch(topic)[:2] == (_NONE, 1)


def test_a_write_that_waits_for_others_is_told_when_another_leads(broker: Ordered) -> None:
    led = State(isr=(BROKER, OTHER), replicas=(BROKER, OTHER))
    topic = _led(broker, led)
    with RawConnection(broker.bootstrap) as waiting:
        data = ProduceRequestTopic(
            name=topic.name, partition_data=[ProduceRequestPartition(index=0, records=bytes(make_batch()))]
        )
        waiting.send_frame(waiting.frame(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data]), 8))
        until(lambda: broker.end_offset(topic)[1] >= 0 and _has_records(broker, topic), "nothing is written")
        assert broker.lead(7, topic, led._replace(leader=OTHER, leader_epoch=1)) == Told(_NONE, {0: _NONE})
        ((found,),) = (item.partition_responses for item in waiting.receive(8, ProduceResponse).responses)
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def _has_records(broker: Ordered, topic: Topic) -> bool:
    return any(path.stat().st_size for path in broker.directory(topic).glob("*.log"))


def test_a_fetch_that_waits_is_told_when_another_leads(broker: Ordered) -> None:
    topic = _led(broker)
    with RawConnection(broker.bootstrap) as waiting:
        waiting.send_frame(waiting.frame(fetch_request(topic, 10, max_wait_ms=60_000), 10))
        told = broker.lead(7, topic, State(leader=OTHER, leader_epoch=1, isr=(OTHER,), replicas=(OTHER, BROKER)))
        assert told == Told(_NONE, {0: _NONE})
        assert fetched(waiting.receive(10, FetchResponse)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- StopReplica -----------------------------------------------------------------------------------------------------


@every_stop_replica
def test_stop_replica_of_an_older_controller_is_refused(broker: Ordered, version: int) -> None:
    topic = _led(broker)
    told = broker.stop(version, topic, Stop(delete=True), controller_epoch=broker.controller_epoch - 1)
    assert told == Told(ErrorCode.STALE_CONTROLLER_EPOCH, {})
    assert broker.clients(topic) == _LEADS


@every_stop_replica
def test_stop_replica_for_an_earlier_registration_is_refused(broker: Ordered, version: int) -> None:
    topic = _led(broker)
    told = broker.stop(version, topic, Stop(delete=True), broker_epoch=broker.broker_epoch - 1)
    if version < STOP_REPLICA_BROKER_EPOCHS:
        assert told == Told(_NONE, {0: _NONE})
        assert broker.clients(topic) == _FOLLOWS
        return
    assert told == Told(ErrorCode.STALE_BROKER_EPOCH, {})
    assert broker.clients(topic) == _LEADS


@every_stop_replica
@pytest.mark.parametrize("delete", [False, True])
def test_a_replica_that_is_not_there_may_be_stopped(broker: Ordered, version: int, delete: bool) -> None:
    assert broker.stop(version, broker.new_topic(), Stop(0, delete=delete), Stop(7, delete=delete)) == Told(
        _NONE, {0: _NONE, 7: _NONE}
    )


@every_stop_replica
def test_a_leader_that_is_stopped_goes_on_to_lead(broker: Ordered, version: int) -> None:
    """Only fetching ends."""
    topic = _led(broker)
    assert broker.stop(version, topic, Stop()) == Told(_NONE, {0: _NONE})
    assert broker.clients(topic) == _LEADS
    assert broker.directory(topic).is_dir()


@every_stop_replica
def test_a_replica_is_deleted(broker: Ordered, version: int) -> None:
    topic = _led(broker)
    assert broker.clients(topic) == _LEADS
    assert broker.stop(version, topic, Stop(leader_epoch=0, delete=True)) == Told(_NONE, {0: _NONE})
    assert not broker.directory(topic).exists()
    (doomed,) = broker.doomed(topic)
    assert any(path.stat().st_size for path in doomed.glob("*.log"))
    # Clients are told of the topic still.
    assert broker.clients(topic) == _FOLLOWS
    assert broker.update(8, {topic: [State(leader=DELETED)]}) == _NONE
    assert broker.clients(topic) == Clients(*[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4)
    assert broker.stop(version, topic, Stop(delete=True)) == Told(_NONE, {0: _NONE})


@pytest.mark.parametrize("version", [version for version in _STOP_REPLICA if version >= STOP_REPLICA_STATES])
@pytest.mark.parametrize(
    ("leader_epoch", "code"),
    [
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (5, _NONE),
        (6, _NONE),
        (-1, _NONE),
        (-2, _NONE),
    ],
)
def test_a_replica_is_not_deleted_by_an_older_leader_epoch(
    broker: Ordered, version: int, leader_epoch: int, code: ErrorCode
) -> None:
    topic = _led(broker, State(0, leader_epoch=5), State(1, leader_epoch=5))
    told = broker.stop(
        version, topic, Stop(0, leader_epoch, delete=True), Stop(1, 5, delete=False), Stop(2, 0, delete=True)
    )
    assert told == Told(_NONE, {0: code, 1: _NONE, 2: _NONE})
    assert broker.directory(topic).exists() == (code != _NONE)
    assert broker.clients(topic) == (_FOLLOWS if code == _NONE else _LEADS)
    assert broker.directory(topic, 1).exists()


def test_a_topic_that_comes_again_begins_anew(broker: Ordered) -> None:
    topic = _led(broker, State(leader_epoch=5))
    assert broker.clients(topic) == _LEADS
    assert broker.stop(4, topic, Stop(leader_epoch=-2, delete=True)) == Told(_NONE, {0: _NONE})
    assert broker.update(8, {topic: [State(leader=DELETED)]}) == _NONE
    again = topic._replace(topic_id=uuid.uuid4())
    assert broker.lead(7, again, State()) == Told(_NONE, {0: _NONE})
    assert broker.update(8, {again: [State()]}) == _NONE
    assert broker.end_offset(again) == (_NONE, 0, 0)
    assert broker.topic_shown(again).topic_id == again.topic_id
    assert len(broker.doomed(topic)) == 1


def test_a_replica_that_goes_to_another_broker_leaves_its_leader_in_place(broker: Ordered) -> None:
    here = State(leader=OTHER, leader_epoch=1, isr=(OTHER,), replicas=(BROKER, OTHER), partition_epoch=3)
    topic, brokers = _led(broker, here), [broker.live, broker.other]
    away = here._replace(leader_epoch=2, replicas=(OTHER,), partition_epoch=4)
    assert broker.update(8, {topic: [away]}, brokers) == _NONE
    assert broker.stop(4, topic, Stop(leader_epoch=2, delete=True)) == Told(_NONE, {0: _NONE})
    assert len(broker.doomed(topic)) == 1
    for _ in range(2):
        assert broker.shown(topic) == {0: Shown(_NONE, OTHER, 2, [OTHER], [OTHER], [])}
        assert broker.clients(topic) == _FOLLOWS
        assert broker.update(8, {topic: [away]}, brokers) == _NONE


def test_a_replica_may_be_stopped_before_clients_are_told_of_it(broker: Ordered) -> None:
    topic = broker.new_topic()
    assert broker.lead(7, topic, State()) == Told(_NONE, {0: _NONE})
    assert broker.stop(4, topic, Stop(leader_epoch=-2, delete=True)) == Told(_NONE, {0: _NONE})
    assert not broker.directory(topic).exists()
    assert broker.topic_shown(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- UpdateMetadata --------------------------------------------------------------------------------------------------


@every_update_metadata
def test_update_metadata_of_an_older_controller_is_refused(broker: Ordered, version: int) -> None:
    topic = broker.new_topic()
    assert (
        broker.update(version, {topic: [State()]}, controller_epoch=broker.controller_epoch - 1)
        == ErrorCode.STALE_CONTROLLER_EPOCH
    )
    assert broker.topic_shown(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@every_update_metadata
def test_update_metadata_for_an_earlier_registration_is_refused(broker: Ordered, version: int) -> None:
    topic, is_told = broker.new_topic(), version >= UPDATE_METADATA_BROKER_EPOCHS
    assert broker.update(version, {topic: [State()]}, broker_epoch=broker.broker_epoch - 1) == (
        ErrorCode.STALE_BROKER_EPOCH if is_told else _NONE
    )
    assert broker.topic_shown(topic).error_code == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_told else _NONE)


@every_update_metadata
def test_update_metadata_of_a_newer_controller_ends_the_older_one(broker: Ordered, version: int) -> None:
    older = broker.controller_epoch
    broker.controller_epoch += 1
    assert broker.update(version, {}) == _NONE
    assert broker.update(version, {}, controller_epoch=older) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.lead(7, broker.new_topic(), State(), controller_epoch=older).error == ErrorCode.STALE_CONTROLLER_EPOCH


@every_update_metadata
def test_clients_are_told_of_topics(broker: Ordered, version: int) -> None:
    topic = broker.new_topic()
    first, second = (
        State(0, BROKER, 3, (BROKER, OTHER), (BROKER, OTHER), 5),
        State(1, OTHER, 4, (OTHER,), (OTHER, BROKER), 6),
    )
    assert broker.lead(7, topic, first, second).error == _NONE
    assert broker.update(version, {topic: [first, second]}, [broker.live, broker.other]) == _NONE
    found = broker.topic_shown(topic)
    assert (found.error_code, found.is_internal) == (_NONE, False)
    if version >= UPDATE_METADATA_IDS:
        assert found.topic_id == topic.topic_id
    assert broker.shown(topic) == {
        0: Shown(_NONE, BROKER, 3, [BROKER, OTHER], [BROKER, OTHER], []),
        1: Shown(_NONE, OTHER, 4, [OTHER, BROKER], [OTHER], []),
    }


@every_update_metadata
def test_clients_are_told_of_topics_that_others_have(broker: Ordered, version: int) -> None:
    topic, another = broker.new_topic(), broker.other._replace(broker_id=5)
    state = State(0, OTHER, 3, (OTHER, 5), (5, OTHER), 5)
    assert broker.update(version, {topic: [state]}, [broker.live, broker.other, another]) == _NONE
    assert broker.shown(topic) == {0: Shown(_NONE, OTHER, 3, [5, OTHER], [OTHER, 5], [])}
    assert broker.clients(topic) == _FOLLOWS
    assert not broker.directory(topic).exists()


@pytest.mark.parametrize("version", [version for version in _UPDATE_METADATA if version >= 4])
def test_clients_are_told_of_replicas_that_cannot_be_read_though_their_broker_is_up(
    broker: Ordered, version: int
) -> None:
    """A broker may have lost a directory."""
    topic, another = broker.new_topic(), broker.other._replace(broker_id=5)
    state = State(0, OTHER, 3, (OTHER,), (5, OTHER), 5, offline=(5,))
    assert broker.update(version, {topic: [state]}, [broker.live, broker.other, another]) == _NONE
    assert broker.shown(topic) == {0: Shown(_NONE, OTHER, 3, [5, OTHER], [OTHER], [5])}
    assert (
        broker.update(
            version, {topic: [state._replace(partition_epoch=6, offline=())]}, [broker.live, broker.other, another]
        )
        == _NONE
    )
    assert broker.shown(topic)[0].offline == []


@pytest.mark.parametrize("version", range(13))
def test_a_leader_that_is_not_up_is_not_shown(broker: Ordered, version: int) -> None:
    topic = broker.new_topic()
    led_by_other = State(0, OTHER, 3, (OTHER, BROKER), (OTHER, BROKER), offline=(OTHER,))
    led_by_nobody = State(1, NOBODY, 4, (OTHER,), (OTHER, BROKER), offline=(OTHER,))
    led = State(2, BROKER, 5, (BROKER, OTHER), (BROKER, OTHER), offline=(OTHER,))
    assert broker.lead(7, topic, led_by_other, led_by_nobody, led).error == _NONE
    assert broker.update(8, {topic: [led_by_other, led_by_nobody, led]}) == _NONE
    # Version 0 leaves out the replicas that are not up.
    others, of_other = ([BROKER, OTHER], [OTHER]) if version else ([BROKER], [])

    def epoch(number: int) -> int:
        return number if version >= _EPOCHS else -1

    missing, offline = ErrorCode.LEADER_NOT_AVAILABLE, [OTHER] if version >= _OFFLINE else []
    assert broker.shown(topic, version) == {
        0: Shown(missing, NOBODY, epoch(3), others[::-1], others[::-1], offline),
        1: Shown(missing, NOBODY, epoch(4), others[::-1], of_other, offline),
        2: Shown(_NONE if version else ErrorCode.REPLICA_NOT_AVAILABLE, BROKER, epoch(5), others, others, offline),
    }


@pytest.mark.parametrize("version", range(13))
def test_a_leader_that_others_reach_over_another_listener_is_not_shown(broker: Ordered, version: int) -> None:
    topic = broker.new_topic()
    elsewhere = Live(OTHER, {("INTERNAL", "PLAINTEXT"): ("127.0.0.1", 1)})
    assert broker.update(8, {topic: [State(0, OTHER, 3, (OTHER,), (OTHER,))]}, [broker.live, elsewhere]) == _NONE
    (found,) = broker.shown(topic, version).values()
    assert (found.error, found.leader) == (
        ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE,
        NOBODY,
    )


@every_update_metadata
def test_clients_are_told_of_the_brokers_on_their_listener(broker: Ordered, version: int) -> None:
    two = Live(OTHER, {("PLAINTEXT", "PLAINTEXT"): ("two", 2), ("INTERNAL", "PLAINTEXT"): ("inside", 3)}, "r")
    three = Live(3, {("INTERNAL", "SASL_SSL"): ("three", 4)})
    if version < 3:
        # Before listeners had names they were called as their protocols; in version 0 there was one.
        two = Live(OTHER, {("ignored", "PLAINTEXT"): ("two", 2)}, "r")
        three = three if version else broker.live
    assert broker.update(version, {}, [broker.live, two, three]) == _NONE
    rack = "r" if version >= 2 else None
    ((host, port),) = broker.live.endpoints.values()
    wanted = [(BROKER, host, port, None), (OTHER, "two", 2, rack)]
    for asked in range(13):
        told = broker.metadata(asked)
        assert sorted((item.node_id, item.host, item.port, item.rack or None) for item in told.brokers) == (
            wanted if asked >= _RACKS else [(*item[:3], None) for item in wanted]
        )
    described = broker.connection.ask(DescribeClusterRequest(), 0, DescribeClusterResponse)
    assert sorted((item.broker_id, item.host, item.port, item.rack or None) for item in described.brokers) == wanted
    # Who is not named is gone.
    assert broker.update(version, {}) == _NONE
    assert [item.node_id for item in broker.metadata(12).brokers] == [BROKER]
    assert [
        item.broker_id for item in broker.connection.ask(DescribeClusterRequest(), 0, DescribeClusterResponse).brokers
    ] == [BROKER]


@pytest.mark.parametrize("controller_id", [OTHER, BROKER, -1, CONTROLLER])
def test_clients_are_told_who_is_controller(broker: Ordered, controller_id: int) -> None:
    assert broker.update(8, {}, [broker.live, broker.other], controller_id=controller_id) == _NONE
    for version in range(1, 13):
        assert broker.metadata(version).controller_id == controller_id
    # One that is not up, as far as the broker knows, is none here.
    described = broker.connection.ask(DescribeClusterRequest(), 0, DescribeClusterResponse)
    assert described.controller_id == (-1 if controller_id == CONTROLLER else controller_id)


@every_update_metadata
def test_a_topic_goes_with_its_partitions(broker: Ordered, version: int) -> None:
    topic = broker.new_topic()
    assert broker.lead(7, topic, State(0), State(1)).error == _NONE
    assert broker.update(version, {topic: [State(0), State(1)]}) == _NONE
    assert sorted(broker.shown(topic)) == [0, 1]
    assert broker.update(version, {topic: [State(0, leader=DELETED), State(1, leader=DELETED)]}) == _NONE
    assert broker.topic_shown(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    everything = broker.connection.ask(MetadataRequest(topics=None), 12, MetadataResponse)
    assert topic.name not in {item.name for item in everything.topics}
    assert broker.directory(topic).exists()


def test_a_topic_that_nobody_knows_may_be_deleted(broker: Ordered) -> None:
    topic = broker.new_topic()
    assert broker.update(8, {topic: [State(0, leader=DELETED)]}) == _NONE
    assert broker.topic_shown(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _by_id(broker: Ordered, topic_id: uuid.UUID) -> tuple[ErrorCode, str | None]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=None, topic_id=topic_id)], allow_auto_topic_creation=False
    )
    (found,) = broker.connection.ask(request, 12, MetadataResponse).topics
    return ErrorCode(found.error_code), found.name


def test_clients_are_told_of_another_id(broker: Ordered) -> None:
    topic = broker.new_topic()
    another = topic._replace(topic_id=uuid.uuid4())
    assert broker.update(8, {topic: [State()]}) == _NONE
    assert _by_id(broker, topic.topic_id) == (_NONE, topic.name)
    assert broker.update(8, {another: [State(leader_epoch=1)]}) == _NONE
    assert broker.topic_shown(topic).topic_id == another.topic_id
    assert _by_id(broker, another.topic_id) == (_NONE, topic.name)
    assert _by_id(broker, topic.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


@every_update_metadata
def test_clients_are_told_of_another_isr_in_the_same_leader_epoch(broker: Ordered, version: int) -> None:
    """Leaders have written it; nobody is told to lead or to follow anew."""
    led = State(0, BROKER, 5, (BROKER, OTHER), (BROKER, OTHER), 7)
    followed = State(1, OTHER, 5, (OTHER,), (BROKER, OTHER), 7)
    topic, brokers = _led(broker, led, followed), [broker.live, broker.other]
    changed = led._replace(isr=(BROKER,), partition_epoch=8), followed._replace(isr=(OTHER, BROKER), partition_epoch=8)
    assert broker.update(version, {topic: changed}, brokers) == _NONE
    assert {number: found.isr for number, found in broker.shown(topic).items()} == {0: [BROKER], 1: [OTHER, BROKER]}
    assert broker.clients(topic) == _LEADS


@every_update_metadata
def test_a_coordinator_is_whoever_leads_the_partition_of_the_group(broker: Ordered, version: int) -> None:
    offsets = Topic(_OFFSETS_TOPIC, uuid.uuid5(uuid.NAMESPACE_URL, _OFFSETS_TOPIC))

    def coordinator(asked: int) -> tuple[int, int, str, int]:
        request = (
            FindCoordinatorRequest(key="group") if asked < 4 else FindCoordinatorRequest(coordinator_keys=["group"])
        )
        answer = broker.connection.ask(request, asked, FindCoordinatorResponse)
        found = answer if asked < 4 else answer.coordinators[0]
        return found.error_code, found.node_id, found.host, found.port

    both, nobody = [broker.live, broker.other], (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
    for leader, brokers, wanted in (
        (OTHER, both, (_NONE, OTHER, "127.0.0.1", 1)),
        (OTHER, [broker.live], nobody),
        (NOBODY, both, nobody),
    ):
        state = State(0, leader, broker.newer_epoch(), (OTHER,), (OTHER,))
        assert broker.update(version, {offsets: [state]}, brokers) == _NONE
        for asked in range(5):
            assert coordinator(asked) == wanted
    assert broker.topic_shown(offsets).is_internal


# --- ControlledShutdown ----------------------------------------------------------------------------------------------


@every_controlled_shutdown
@pytest.mark.parametrize("broker_id", [BROKER, OTHER, 1234])
def test_a_broker_that_is_not_controller_shuts_nobody_down(broker: Ordered, version: int, broker_id: int) -> None:
    assert broker.shut_down(version, broker_id=broker_id) == (ErrorCode.STALE_CONTROLLER_EPOCH, [])


@every_controlled_shutdown
def test_a_broker_that_nobody_knows_is_not_shut_down(controller: Ordered, version: int) -> None:
    assert controller.shut_down(version, broker_id=1234) == (ErrorCode.BROKER_NOT_AVAILABLE, [])


@every_controlled_shutdown
def test_what_a_broker_leads_is_led_by_another_when_it_shuts_down(controller: Ordered, version: int) -> None:
    epoch = controller.register_other()
    shared, alone, followed = (
        controller.write_topic(replicas) for replicas in ((OTHER, BROKER), (OTHER,), (BROKER, OTHER))
    )
    lost = controller.write_topic((OTHER, BROKER), (OTHER, BROKER))
    _, partition_epoch = _state(controller, lost)
    assert _alter(
        controller,
        3,
        lost,
        AlterPartitionRequestPartition(leader_epoch=0, partition_epoch=partition_epoch),
        (OTHER,),
        epoch,
    ) == (
        _NONE,
        {0: (_NONE, OTHER, 0, [OTHER], partition_epoch + 1)},
    )
    # Once more is no mistake: the answer may have been lost.
    for _ in range(2):
        assert _shut_down(controller, version, epoch, shared, alone, followed, lost) == (_NONE, [(lost.name, 0)])
        assert [_leads(controller, topic) for topic in (shared, alone, followed, lost)] == [
            (BROKER, 1, (BROKER,)), (OTHER, 0, (OTHER,)), (BROKER, 1, (BROKER,)), (OTHER, 0, (OTHER,)),
        ]  # fmt: skip
        assert _leads(controller, lost, 1) == (BROKER, 1, (BROKER,))


@every_controlled_shutdown
def test_an_earlier_registration_is_not_shut_down(controller: Ordered, version: int) -> None:
    epoch = controller.register_other()
    topic = controller.write_topic((OTHER, BROKER))
    refused = version >= 2
    assert _shut_down(controller, version, epoch - 1, topic) == (ErrorCode.STALE_BROKER_EPOCH if refused else _NONE, [])
    assert _leads(controller, topic)[0] == (OTHER if refused else BROKER)
    assert _shut_down(controller, version, -1, topic) == (_NONE, [])
    assert _leads(controller, topic)[0] == BROKER


def _shut_down(
    broker: Ordered, version: int, broker_epoch: int, *topics: Topic
) -> tuple[ErrorCode, list[tuple[str, int]]]:
    """The error, and which partitions of these topics remain."""
    error, remaining = broker.shut_down(version, broker_epoch=broker_epoch)
    return error, [item for item in remaining if item[0] in {topic.name for topic in topics}]


def _state(broker: Ordered, topic: Topic, number: int = 0) -> tuple[PartitionStateNode, int]:
    found = broker.written(topic, number)
    assert found is not None
    return found


def _leads(broker: Ordered, topic: Topic, number: int = 0) -> tuple[int, int, tuple[int, ...]]:
    """Leader, its epoch and ISR in the tree."""
    state, _ = _state(broker, topic, number)
    return state.leader, state.leader_epoch, state.isr


# --- what a controller orders ----------------------------------------------------------------------------------------


@pytest.fixture
def other(controller: Ordered) -> Iterator[Obedient]:
    """A broker that obeys the controller."""
    with Obedient() as made:
        yield made


def _names(topic: Topic) -> Callable[[LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest], bool]:
    return lambda order: topic.name in {state.topic_name for state in order.topic_states}


def test_a_broker_that_comes_is_told_of_the_brokers_before_it_is_to_follow_them(
    controller: Ordered, other: Obedient
) -> None:
    """It follows nobody whom it does not know to be up."""
    controller.register_other()
    topic = controller.write_topic((OTHER, BROKER), (BROKER, OTHER))
    epoch = controller.register_other(other.port)
    led, order = other.first(LeaderAndIsrRequest, _names(topic))
    told, update = other.first(UpdateMetadataRequest)
    assert told < led
    assert {live.id: [(item.listener, item.host) for item in live.endpoints] for live in update.live_brokers} == {
        number: [("PLAINTEXT", "127.0.0.1")] for number in (BROKER, OTHER)
    }
    assert (order.broker_epoch, update.broker_epoch) == (epoch, epoch)
    assert order.controller_id == update.controller_id == BROKER
    assert order.controller_epoch == update.controller_epoch
    assert {live.broker_id: live.port for live in order.live_leaders} == {BROKER: controller.port} | (
        {OTHER: other.port}
        if OTHER in {state.leader for of_topic in order.topic_states for state in of_topic.partition_states}
        else {}
    )


def test_a_new_topic_is_led_before_clients_are_told_of_it(controller: Ordered, other: Obedient) -> None:
    controller.register_other(other.port)
    topic = controller.write_topic((OTHER, BROKER), (BROKER, OTHER))
    led, order = other.first(LeaderAndIsrRequest, _names(topic))
    told, update = other.first(UpdateMetadataRequest, _names(topic))
    assert led < told
    assert [other.orders[place][0] for place in (led, told)] == [7, 8]
    # What it has had of earlier tests may stand beside it.
    (of_topic,) = (state for state in order.topic_states if state.topic_id == topic.topic_id)
    (shown,) = (state for state in update.topic_states if state.topic_id == topic.topic_id)
    states = {
        state.partition_index: (
            state.leader,
            state.leader_epoch,
            state.isr,
            state.replicas,
            state.partition_epoch,
            state.is_new,
        )
        for state in of_topic.partition_states
    }
    assert states == {
        0: (OTHER, 0, [OTHER, BROKER], [OTHER, BROKER], 0, True),
        1: (BROKER, 0, [BROKER, OTHER], [BROKER, OTHER], 0, True),
    }
    assert {
        state.partition_index: (state.leader, state.leader_epoch, state.isr, state.replicas, state.zk_version)
        for state in shown.partition_states
    } == {number: state[:-1] for number, state in states.items()}
    assert {live.broker_id: live.port for live in order.live_leaders} == {BROKER: controller.port, OTHER: other.port}


def test_a_broker_that_shuts_down_is_told_who_leads_and_what_to_stop(controller: Ordered, other: Obedient) -> None:
    epoch = controller.register_other(other.port)
    topic = controller.write_topic((OTHER, BROKER), (BROKER, OTHER))
    assert _shut_down(controller, 3, epoch, topic) == (_NONE, [])
    _, order = other.first(
        LeaderAndIsrRequest,
        lambda order: _names(topic)(order) and order.topic_states[0].partition_states[0].leader_epoch > 0,
    )
    moved = {
        state.partition_index: (state.leader, state.leader_epoch, state.isr)
        for state in order.topic_states[0].partition_states
    }
    assert moved[0] == (BROKER, 1, [BROKER])
    _, stop = other.first(StopReplicaRequest, _names(topic))
    assert 1 in {state.partition_index for of_topic in stop.topic_states for state in of_topic.partition_states}
    assert not any(state.delete_partition for of_topic in stop.topic_states for state in of_topic.partition_states)


def test_a_topic_goes_from_clients_before_its_replicas_are_deleted(controller: Ordered, other: Obedient) -> None:
    controller.register_other(other.port)
    topic = controller.write_topic((OTHER, BROKER), (BROKER, OTHER))
    other.first(UpdateMetadataRequest, _names(topic))
    controller.delete_topic(topic)
    told, update = other.first(
        UpdateMetadataRequest,
        lambda order: _names(topic)(order) and order.topic_states[0].partition_states[0].leader == DELETED,
    )
    deleted, stop = other.first(
        StopReplicaRequest,
        lambda order: _names(topic)(order) and order.topic_states[0].partition_states[0].delete_partition,
    )
    assert told < deleted
    assert {state.partition_index: state.leader for state in update.topic_states[0].partition_states} == {
        0: DELETED,
        1: DELETED,
    }
    states = {
        state.partition_index: (state.leader_epoch, state.delete_partition)
        for state in stop.topic_states[0].partition_states
    }
    assert states == {0: (-2, True), 1: (-2, True)}


# --- AlterPartition --------------------------------------------------------------------------------------------------

_Altered = tuple[ErrorCode, dict[int, tuple[ErrorCode, int, int, list[int], int]]]


def _alter(
    broker: Ordered,
    version: int,
    topic: Topic,
    partition: AlterPartitionRequestPartition,
    isr: tuple[int, ...],
    broker_epoch: int,
    broker_id: int = OTHER,
) -> _Altered:
    """The answer to a proposal about one partition: the error of the whole; error, leader, leader epoch, ISR and
    partition epoch by partition."""
    # Brokers tell no epochs of others in ZooKeeper mode.
    partition.new_isr = list(isr) if version < 3 else []
    partition.new_isr_with_epochs = (
        [AlterPartitionRequestBrokerState(broker_id=member) for member in isr] if version >= 3 else []
    )
    named = AlterPartitionRequestTopic(topic_name=topic.name, topic_id=topic.topic_id, partitions=[partition])
    answer = broker.connection.ask(
        AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=[named]),
        version,
        AlterPartitionResponse,
    )
    found = {}
    for item in answer.topics:
        assert (item.topic_id == topic.topic_id) if version >= 2 else (item.topic_name == topic.name)
        for told in item.partitions:
            assert told.leader_recovery_state == _RECOVERED
            found[told.partition_index] = (
                ErrorCode(told.error_code),
                told.leader_id,
                told.leader_epoch,
                told.isr,
                told.partition_epoch,
            )
    return ErrorCode(answer.error_code), found


def _refused(code: ErrorCode) -> _Altered:
    return _NONE, {0: (code, 0, 0, [], 0)}


def _proposed(
    leader_epoch: int = 0, partition_epoch: int = 0, recovery: int = _RECOVERED
) -> AlterPartitionRequestPartition:
    return AlterPartitionRequestPartition(
        partition_index=0, leader_epoch=leader_epoch, partition_epoch=partition_epoch, leader_recovery_state=recovery
    )


@every_alter_partition
def test_an_isr_is_proposed_to_the_controller(broker: Ordered, version: int) -> None:
    assert _alter(broker, version, broker.new_topic(), _proposed(), (OTHER,), 1) == (ErrorCode.NOT_CONTROLLER, {})


@every_alter_partition
def test_an_isr_is_taken_as_the_leader_proposes_it(controller: Ordered, version: int) -> None:
    epoch = controller.register_other()
    topic = controller.write_topic((OTHER, BROKER))
    assert _leads(controller, topic) == (OTHER, 0, (OTHER, BROKER))
    for partition_epoch, isr in ((0, (OTHER,)), (1, (OTHER, BROKER)), (2, (OTHER,))):
        answer = _alter(controller, version, topic, _proposed(0, partition_epoch), isr, epoch)
        assert answer == (_NONE, {0: (_NONE, OTHER, 0, list(isr), partition_epoch + 1)})
        assert (_leads(controller, topic), _state(controller, topic)[1]) == ((OTHER, 0, isr), partition_epoch + 1)
    # Metadata has it as soon as this broker is told.
    until(
        lambda: [shown.isr for shown in controller.shown(topic).values()] == [[OTHER]],
        "clients are not told of the ISR",
    )


@every_alter_partition
def test_an_isr_that_stands_already_is_told_again(controller: Ordered, version: int) -> None:
    """An answer may have been lost."""
    epoch = controller.register_other()
    topic = controller.write_topic((OTHER, BROKER))
    for partition_epoch in (0, 0, 1):
        answer = _alter(controller, version, topic, _proposed(0, partition_epoch), (OTHER,), epoch)
        assert answer == (_NONE, {0: (_NONE, OTHER, 0, [OTHER], 1)})
    assert _state(controller, topic)[1] == 1


@every_alter_partition
def test_a_proposal_on_top_of_another_state_is_refused(controller: Ordered, version: int) -> None:
    epoch = controller.register_other()
    topic = controller.write_topic((OTHER, BROKER))
    assert _alter(controller, version, topic, _proposed(), (OTHER,), epoch)[1][0][0] == _NONE

    def code(leader_epoch: int, partition_epoch: int) -> _Altered:
        return _alter(controller, version, topic, _proposed(leader_epoch, partition_epoch), (OTHER, BROKER), epoch)

    assert code(0, 0) == _refused(ErrorCode.INVALID_UPDATE_VERSION)
    assert code(-1, 1) == _refused(ErrorCode.FENCED_LEADER_EPOCH)
    # Another controller has written it: whoever asks is to look for that one.
    assert code(0, 2) == _refused(ErrorCode.NOT_CONTROLLER)
    assert code(1, 1) == _refused(ErrorCode.NOT_CONTROLLER)
    assert code(-1, 2) == _refused(ErrorCode.NOT_CONTROLLER)
    assert _leads(controller, topic) == (OTHER, 0, (OTHER,))


@every_alter_partition
def test_proposals_about_nothing_that_is_there_are_refused(controller: Ordered, version: int) -> None:
    epoch = controller.register_other()
    topic = controller.write_topic((OTHER, BROKER))
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 2 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _alter(controller, version, controller.new_topic(), _proposed(), (OTHER,), epoch) == _refused(unknown)
    beyond = _proposed()
    beyond.partition_index = 1
    assert _alter(controller, version, topic, beyond, (OTHER,), epoch) == (
        _NONE,
        {1: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0, [], 0)},
    )


@every_alter_partition
def test_a_broker_that_is_not_up_does_not_come_into_the_isr(controller: Ordered, version: int) -> None:
    epoch = controller.register_other()
    topic = controller.write_topic((OTHER, BROKER, 5))
    refused = ErrorCode.INELIGIBLE_REPLICA if version >= 2 else ErrorCode.OPERATION_NOT_ATTEMPTED
    assert _alter(controller, version, topic, _proposed(), (OTHER, BROKER, 5), epoch) == _refused(refused)
    assert _leads(controller, topic) == (OTHER, 0, (OTHER, BROKER))


@every_alter_partition
def test_a_broker_that_shuts_down_does_not_come_into_the_isr(controller: Ordered, version: int) -> None:
    epoch = controller.register_other()
    topic = controller.write_topic((BROKER, OTHER))
    assert _shut_down(controller, 3, epoch, topic) == (_NONE, [])
    _, partition_epoch = _state(controller, topic)
    refused = ErrorCode.INELIGIBLE_REPLICA if version >= 2 else ErrorCode.OPERATION_NOT_ATTEMPTED
    proposed = _proposed(1, partition_epoch)
    assert _alter(controller, version, topic, proposed, (BROKER, OTHER), controller.broker_epoch, BROKER) == _refused(
        refused
    )


@every_alter_partition
def test_a_proposal_of_another_registration_is_refused_whole(controller: Ordered, version: int) -> None:
    epoch = controller.register_other()
    topic = controller.write_topic((OTHER, BROKER))
    for told in (epoch - 1, epoch + 1, -1):
        assert _alter(controller, version, topic, _proposed(), (OTHER,), told) == (ErrorCode.STALE_BROKER_EPOCH, {})
    assert _alter(controller, version, topic, _proposed(), (OTHER,), epoch, broker_id=5) == (
        ErrorCode.STALE_BROKER_EPOCH,
        {},
    )


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_leader_that_had_recovered_does_not_recover_again(controller: Ordered, version: int) -> None:
    epoch = controller.register_other()
    topic = controller.write_topic((OTHER, BROKER))
    for isr in ((OTHER,), (OTHER, BROKER), (BROKER, OTHER)):
        answer = _alter(controller, version, topic, _proposed(recovery=_RECOVERING), isr, epoch)
        assert answer == _refused(ErrorCode.INVALID_REQUEST)


# --- AllocateProducerIds ---------------------------------------------------------------------------------------------


def _allocated(broker: Ordered, broker_id: int, broker_epoch: int) -> tuple[ErrorCode, int, int]:
    """The error, the first of a block of producer ids, and how many they are."""
    request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    answer = broker.connection.ask(request, 0, AllocateProducerIdsResponse)
    return ErrorCode(answer.error_code), answer.producer_id_start, answer.producer_id_len


def test_a_broker_gets_producer_ids_in_blocks(controller: Ordered) -> None:
    epoch = controller.register_other()
    controller.write_topic((OTHER,))  # it is known from then on
    blocks = [_allocated(controller, OTHER, epoch) for _ in range(3)]
    assert [(error, size) for error, _, size in blocks] == [(_NONE, 1000)] * 3
    firsts = [first for _, first, _ in blocks]
    assert firsts == [firsts[0], firsts[0] + 1000, firsts[0] + 2000]


def test_a_broker_that_nobody_knows_gets_no_producer_ids(controller: Ordered) -> None:
    epoch = controller.register_other()
    controller.write_topic((OTHER,))
    for told in (epoch - 1, epoch + 1, -1):
        assert _allocated(controller, OTHER, told) == (ErrorCode.STALE_BROKER_EPOCH, 0, 0)
    assert _allocated(controller, 1234, epoch) == (ErrorCode.BROKER_ID_NOT_REGISTERED, 0, 0)


def test_a_broker_that_is_not_controller_gives_no_producer_ids(broker: Ordered) -> None:
    assert _allocated(broker, BROKER, broker.broker_epoch) == (ErrorCode.NOT_CONTROLLER, 0, 0)
