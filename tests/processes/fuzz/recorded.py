"""Frames that a broker has answered: one or more for each API and version that it announces."""

from __future__ import annotations

import struct

from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from jesenska.wire.codec import encode
from jesenska.wire.headers import request_head
from jesenska.wire.language import Message
from jesenska.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from jesenska.wire.registry import APIS
from tests.raw_connection import RawConnection
from tests.sensible_requests import SENSIBLE, Served

_NOW_MS = 1_700_000_000_000


def _produce(served: Served) -> list[tuple[Message, int]]:
    """Batches of every codec, of several records, from an idempotent producer. Some requests have several."""
    records = [
        (_NOW_MS + number, b"key %d" % number, b"value " * number, ((b"name", b"header"),)) for number in range(20)
    ]
    batches = [bytes(encode_batch(records, codec)) for codec in Codec]
    batches.append(bytes(encode_batch(records, producer_id=1000, producer_epoch=0, base_sequence=0)))
    requests: list[tuple[Message, int]] = []
    for batch in batches:
        data = ProduceRequestTopic(
            name=served.name, topic_id=served.id, partition_data=[ProduceRequestPartition(index=0, records=batch)]
        )
        requests += [
            (ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data]), version)
            for acks, version in ((1, 7), (-1, 9), (1, 13))
        ]
    several = [ProduceRequestPartition(index=index, records=batches[index]) for index in range(3)]
    topics = [ProduceRequestTopic(name=name, partition_data=several) for name in (served.name, "no such topic")]
    return [*requests, (ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 8)]


def _fetch(served: Served) -> list[tuple[Message, int]]:
    """A session that begins, and fetches of several partitions."""
    partitions = [
        FetchRequestPartition(partition=index, fetch_offset=index, partition_max_bytes=1 << 16) for index in range(3)
    ]
    topic = FetchRequestTopic(topic=served.name, topic_id=served.id, partitions=partitions)
    request = FetchRequest(max_wait_ms=10, min_bytes=1, session_id=0, session_epoch=0, topics=[topic])
    return [(request, version) for version in (7, 12, 16)]


def record(served: Served) -> list[bytes]:
    """Sends each frame to the broker, which must answer. Returns the frames without the length in front."""
    requests = [(make(served, version), version) for key, make in SENSIBLE.items() for version in served.announced[key]]
    requests += _produce(served) + _fetch(served)
    frames = []
    with RawConnection(served.broker.bootstrap) as connection:
        for request, version in requests:
            api = APIS[request.api_key]
            frame = bytes(request_head(api.key, version, 7, "recorded", api.request_header_version(version))) + encode(
                request, version
            )
            connection.send(struct.pack(">i", len(frame)) + frame)
            connection.receive_frame()
            frames.append(frame)
    return frames
