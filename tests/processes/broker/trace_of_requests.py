"""Prints the functions that a produce and a fetch of one record go through, a line each: request, file, function. To
be run from source (JESENSKA_PURE=1)."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from jesenska.broker.server import Broker
from jesenska.config.layers import BrokerConfig
from jesenska.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from tests.raw_connection import RawConnection
from tests.units.log.log_harness import make_batch

_SOURCES = "/src/jesenska/"


@contextmanager
def traced(name: str) -> Iterator[None]:
    lines: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and (_SOURCES in code.co_filename or code.co_filename.startswith("<")):
            lines.append(f"{name}\t{code.co_filename.rpartition(_SOURCES)[2]}\t{code.co_qualname}")

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
    print("\n".join(lines))


async def main(directory: Path) -> None:
    broker = Broker(BrokerConfig({"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"}))
    await broker.start()
    try:
        host, port = broker.endpoint_for("PLAINTEXT")
        with RawConnection(f"{host}:{port}") as connection:
            reader, writer = await asyncio.open_connection(host, port)

            async def ask(request: ProduceRequest | FetchRequest | MetadataRequest, version: int) -> None:
                frame = connection.frame(request, version)
                writer.write(len(frame).to_bytes(4, "big") + frame)
                await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))

            await ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
            wanted = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            produce = ProduceRequest(
                acks=1,
                topic_data=[
                    ProduceRequestTopic(name="t", partition_data=[ProduceRequestPartition(records=make_batch())])
                ],
            )
            fetch = FetchRequest(
                min_bytes=1, max_bytes=1 << 20, topics=[FetchRequestTopic(topic="t", partitions=[wanted])]
            )
            # Objects that are made at first use exist after this.
            for _ in range(2):
                await ask(produce, 9)
                await ask(fetch, 12)
            with traced("produce"):
                await ask(produce, 9)
            with traced("fetch"):
                await ask(fetch, 12)
            writer.close()
    finally:
        await broker.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(Path(made)))
