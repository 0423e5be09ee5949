"""All acknowledged records are in every replica, byte for byte."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from jesenska.records.header import Codec
from tests.cluster.cluster import BrokerCluster, until
from tests.conformance.conftest import need_modules
from tests.conformance.disk import batches, codecs

_RECORDS = 2000
_PARTITIONS = 2


def _values(partition: int) -> list[bytes]:
    return [b"%d of %d: %s" % (number, partition, b"and again " * (number % 12)) for number in range(_RECORDS)]


def _is_everywhere(cluster: BrokerCluster, topic: str, values: dict[int, list[bytes]]) -> None:
    """Waits until all replicas have equal logs with these values in this order, all of which are committed and can be
    read."""
    cluster.until_logs_equal(topic, len(values))
    for number, wanted in values.items():
        records = cluster.read(topic, number)
        assert [record.value for record in records] == wanted
        assert [record.offset for record in records] == list(range(len(wanted)))
        for broker_id in cluster.brokers:
            until(
                lambda broker_id=broker_id, number=number, wanted=wanted: (
                    cluster.high_watermark(broker_id, topic, number) == len(wanted)
                ),  # type: ignore[misc]
                f"the high watermark of {topic}-{number} does not come to {len(wanted)} on broker {broker_id}",
            )


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_what_our_client_writes_with_acks_all_is_in_every_log(cluster: BrokerCluster, codec: Codec) -> None:
    topic = cluster.create(f"ours-{codec.name.lower()}", _PARTITIONS, configs={"segment.bytes": "40000"})
    values = {number: _values(number) for number in range(_PARTITIONS)}
    for number, wanted in values.items():
        assert cluster.write(topic, wanted, partition=number, compression=codec, batch_size=4000, acks=-1) == list(
            range(_RECORDS)
        )
    _is_everywhere(cluster, topic, values)
    for broker in cluster.brokers.values():
        assert codec in codecs(broker.data, topic)
        assert len(list(batches(broker.data, topic))) > 5


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_what_librdkafka_writes_with_acks_all_is_in_every_log(cluster: BrokerCluster, codec: Codec) -> None:
    need_modules("confluent_kafka")
    client: Any = importlib.import_module("confluent_kafka")
    topic = cluster.create(f"theirs-{codec.name.lower()}", _PARTITIONS)
    values = {number: _values(number) for number in range(_PARTITIONS)}
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "acks": "all",
        "enable.idempotence": True,
        "compression.type": codec.name.lower(),
        "batch.num.messages": 100,
        "log_level": 0,
    }
    producer = client.Producer(settings)
    errors: list[Any] = []
    for number, wanted in values.items():
        for value in wanted:
            producer.produce(topic, value, partition=number, on_delivery=lambda error, _: errors.append(error))
            producer.poll(0)
    assert producer.flush(60) == 0
    assert errors == [None] * (_RECORDS * _PARTITIONS)
    _is_everywhere(cluster, topic, values)


@pytest.mark.parametrize("acks", [0, 1])
def test_what_is_written_without_waiting_for_replicas_comes_to_all_of_them(cluster: BrokerCluster, acks: int) -> None:
    topic = cluster.create(f"acks-{acks}")
    values = _values(0)
    cluster.write(topic, values, acks=acks, batch_size=4000)
    until(lambda: len(cluster.read(topic)) == _RECORDS, "not everything is committed")
    _is_everywhere(cluster, topic, {0: values})


def test_a_batch_that_is_larger_than_a_followers_fetch_is_replicated(cluster: BrokerCluster) -> None:
    topic = cluster.create("large", configs={"max.message.bytes": "4000000"})
    values = [b"small", b"x" * 2_500_000, b"y" * 1_200_000, b"small again"]
    for value in values:
        cluster.write(topic, [value], max_request_size=4_000_000, batch_size=4_000_000)
    _is_everywhere(cluster, topic, {0: values})


def test_a_follower_that_was_away_catches_up(cluster: BrokerCluster) -> None:
    topic = cluster.create("caught-up", configs={"segment.bytes": "40000"})
    cluster.write(topic, _values(0), batch_size=4000)
    leader = cluster.view().of(topic).leader
    follower = next(broker_id for broker_id in cluster.brokers if broker_id not in (leader, cluster.controller()))
    cluster.brokers[follower].stop()
    cluster.until(lambda view: follower not in view.of(topic).isr)
    cluster.write(topic, _values(0), batch_size=4000)
    cluster.brokers[follower].start()
    cluster.until(lambda view: view.of(topic).is_whole)
    _is_everywhere(cluster, topic, {0: _values(0) * 2})
