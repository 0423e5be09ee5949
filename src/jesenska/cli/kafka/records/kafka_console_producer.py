"""kafka-console-producer: sends every line of standard input as a record. The flags are those of Apache Kafka 4.3.1's
tool and of older releases.

While earlier batches are in progress, lines are collected in batches; otherwise they are sent immediately. So each
line that a person types is sent immediately, and input from a pipe is sent in full batches. The lines that are not yet
acknowledged are limited: by a number of batches, by buffer.memory, and by max.request.size for a single line.

Differs from Kafka's tool: a record that cannot be delivered makes the exit code 1 (Kafka's tool only logs it). Custom
readers are not supported."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from jesenska.base.clock import system_random
from jesenska.base.errors import JesenskaError, KafkaError
from jesenska.cli.kafka.records.console_lines import PROPERTIES, LineParser, LineSplitter
from jesenska.cli.shared.tool import (
    Parser,
    add_bootstrap,
    client_settings,
    cluster_of,
    meant,
    properties_of,
    read_properties,
    run_async,
    sentence,
    telling,
)
from jesenska.client.partitioner import partition_of_key
from jesenska.client.producer import Producer
from jesenska.config.settings.client_settings import PRODUCER_SETTINGS
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from jesenska.records.record import RecordInput

_PIECE_BYTES = 64 * 1024
_BATCH_BYTES = 64 * 1024
#: The largest number of batches in progress. While this number is reached, no input is read until a batch is
#: acknowledged.
_BATCHES_UNDER_WAY = 64
#: Upper limit on the bytes of a record in addition to key, value and headers.
_RECORD_OVERHEAD_BYTES = 70
_OUR_READERS = ("kafka.tools.ConsoleProducer$LineMessageReader", "org.apache.kafka.tools.LineMessageReader")
#: Flags that set settings of the producer, each with the name of the setting.
_FLAGS = {
    "batch_size": "batch.size",
    "max_partition_memory_bytes": "batch.size",
    "timeout": "linger.ms",
    "request_required_acks": "acks",
    "compression_codec": "compression.type",
    "request_timeout_ms": "request.timeout.ms",
    "message_send_max_retries": "retries",
    "retry_backoff_ms": "retry.backoff.ms",
    "max_memory_bytes": "buffer.memory",
    "max_block_ms": "max.block.ms",
    "metadata_expiry_ms": "metadata.max.age.ms",
    "socket_buffer_size": "send.buffer.bytes",
}


def _parser() -> Parser:
    parser = Parser("kafka-console-producer", "Sends every line of standard input to a topic.")
    add_bootstrap(parser, old_name="--broker-list")
    parser.add_argument(
        "--topic", metavar="TOPIC", help="REQUIRED: The topic to send to; it is created if the broker allows that."
    )
    parser.add_argument(
        "--command-property",
        "--producer-property",
        action="append",
        dest="property_list",
        metavar="NAME=VALUE",
        help="A setting of the producer.",
    )
    parser.add_argument(
        "--producer.config", dest="producer_config", metavar="FILE", help="Older name of --command-config."
    )
    _add_lines(parser)
    _add_sending(parser)
    for old in ("--queue-size", "--queue-enqueuetimeout-ms", "--value-serializer", "--key-serializer"):
        parser.add_argument(old, help=argparse.SUPPRESS)
    for old in ("--new-producer", "--old-producer"):
        parser.add_argument(old, action="store_true", help=argparse.SUPPRESS)
    return parser


def _add_lines(parser: Parser) -> None:
    parser.add_argument(
        "--reader-property", "--property", action="append", dest="reader_properties", metavar="NAME=VALUE",
        help="How lines are read: parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, "
             "headers.key.separator, null.marker, "
        "ignore.error.",
    )  # fmt: skip
    parser.add_argument("--reader-config", metavar="FILE", help="The same from a property file.")
    parser.add_argument("--line-reader", metavar="CLASS", help=argparse.SUPPRESS)


def _add_sending(parser: Parser) -> None:
    parser.add_argument(
        "--compression-codec",
        nargs="?",
        const="gzip",
        metavar="CODEC",
        help="none, gzip (where no name follows), snappy, lz4 or zstd.",
    )
    parser.add_argument(
        "--sync", action="store_true", help="Wait for the acknowledgement of each line before the next."
    )
    parser.add_argument("--request-required-acks", metavar="ACKS", help="0, 1, or all (-1), the default.")
    parser.add_argument("--batch-size", metavar="BYTES", help="Bytes at which a batch leaves (65536).")
    parser.add_argument(
        "--timeout",
        metavar="MS",
        help="Most milliseconds a line may wait for others; none waits while nothing is under way.",
    )
    parser.add_argument(
        "--max-memory-bytes", metavar="BYTES", help="Bytes of records that may wait for the broker (33554432)."
    )
    parser.add_argument("--max-partition-memory-bytes", metavar="BYTES", help="Older name of --batch-size.")
    parser.add_argument(
        "--message-send-max-retries",
        metavar="N",
        help="Attempts after the first one; delivery.timeout.ms bounds them, too.",
    )
    parser.add_argument("--retry-backoff-ms", metavar="MS", help="Pause before another attempt (100).")
    parser.add_argument("--request-timeout-ms", metavar="MS", help="How long an answer is waited for (30000).")
    parser.add_argument(
        "--max-block-ms",
        "--metadata-fetch-timeout-ms",
        dest="max_block_ms",
        metavar="MS",
        help="How long the topic's partitions are waited for (60000).",
    )
    parser.add_argument(
        "--metadata-expiry-ms", metavar="MS", help="Age at which metadata are asked for again (300000)."
    )
    parser.add_argument("--socket-buffer-size", metavar="BYTES", help="The system's send buffer.")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    if not options.topic:
        parser.error("Missing required argument --topic")
    if options.line_reader and options.line_reader not in _OUR_READERS:
        raise JesenskaError(
            f"--line-reader {options.line_reader} names a Java class, which cannot be loaded here: --reader-property "
            f"says how lines are read."
        )
    lines = LineParser(read_properties(options.reader_config) | properties_of(options.reader_properties))
    for name in lines.unknown:
        print(
            f"kafka-console-producer: {name} says nothing about how lines are read; it is "
            f"ignored{meant(name, PROPERTIES)}.",
            file=sys.stderr,
        )
    flags = {setting: value for flag, setting in _FLAGS.items() if (value := getattr(options, flag)) is not None}
    texts = (
        read_properties(options.producer_config or options.command_config)
        | flags
        | properties_of(options.property_list)
    )
    settings = client_settings(parser, PRODUCER_SETTINGS, texts)
    async with cluster_of(options, texts, PRODUCER_SETTINGS) as cluster:
        async with telling("Waiting for the broker"), asyncio.timeout(settings["max.block.ms"] / 1000) as limit:
            try:
                await cluster.topic(options.topic, create=True)
            except TimeoutError:
                if limit.expired():
                    raise JesenskaError(
                        f"Topic {options.topic} did not become available within {settings['max.block.ms']} ms."
                    ) from None
                raise
        async with _producer(cluster, settings, texts) as producer:
            sender = _Sender(
                producer,
                options.topic,
                lines,
                batch_bytes=settings["batch.size"] if "batch.size" in texts else _BATCH_BYTES,
                sync=options.sync,
            )
            return await sender.send_all(sys.stdin.fileno())


def _producer(cluster: Any, settings: dict[str, Any], texts: dict[str, str]) -> Producer:
    acks = -1 if settings["acks"] == "all" else int(settings["acks"])
    codec = Codec[settings["compression.type"].upper()]
    level = (
        settings.get(f"compression.{settings['compression.type']}.level")
        if f"compression.{settings['compression.type']}.level" in texts
        else None
    )
    return Producer(
        cluster,
        acks=acks,
        enable_idempotence=settings["enable.idempotence"] if "enable.idempotence" in texts else None,
        compression=codec,
        compression_level=level,
        max_request_size=settings["max.request.size"],
        buffer_memory=settings["buffer.memory"],
        delivery_timeout_seconds=settings["delivery.timeout.ms"] / 1000,
        max_block_seconds=settings["max.block.ms"] / 1000,
        retries=settings["retries"],
        ignore_keys=settings["partitioner.ignore.keys"],
    )


class _Sender:
    """Collects records by partition and passes whole batches to the producer."""

    def __init__(self, producer: Producer, topic: str, lines: LineParser, *, batch_bytes: int, sync: bool) -> None:
        self._producer = producer
        self._topic = topic
        self._lines = lines
        self._batch_bytes = batch_bytes
        self._sync = sync
        self._random = system_random()
        self._line_number = 0
        self._gathered: dict[int, list[RecordInput]] = {}
        self._gathered_bytes: dict[int, int] = {}
        self._under_way: set[asyncio.Future[tuple[int, int]]] = set()
        self._sticky = -1
        self._failed = False

    async def send_all(self, descriptor: int) -> int:
        splitter = LineSplitter(self._producer.max_request_size - _RECORD_OVERHEAD_BYTES)
        prompt = os.isatty(descriptor) and sys.stdout.isatty()
        try:
            _prompt(prompt)
            while piece := await self._read(descriptor):
                await self._take(splitter.feed(piece))
                _prompt(prompt)
            await self._take(splitter.finish())
        finally:
            # If a line is faulty, the lines before it are still sent, as in Kafka's tool.
            await self._leave(everything=True)
            async with telling("Waiting for the broker to acknowledge what was sent"):
                if self._under_way:
                    await asyncio.wait(self._under_way)
        await asyncio.sleep(0)
        return 1 if self._failed else 0

    async def _read(self, descriptor: int) -> bytes:
        """Returns the next piece of input. While it waits for input, the collected records are sent as soon as no
        batch is in progress."""
        reading = asyncio.ensure_future(_piece(descriptor))
        try:
            while not reading.done():
                awaited: set[asyncio.Future[Any]] = {reading, *self._under_way} if self._gathered else {reading}
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                await self._leave(everything=False)
            return reading.result()
        finally:
            reading.cancel()

    async def _take(self, lines: list[bytes | None]) -> None:
        partitions = await self._producer.partition_count(self._topic)
        now_ms = self._producer.cluster.clock.now_ms()
        parse = None if self._lines.plain else self._lines.parse
        for line in lines:
            self._line_number += 1
            if line is None:
                self._fail(
                    f"Line number {self._line_number} is longer than max.request.size allows "
                    f"({self._producer.max_request_size} bytes); it is left out."
                )
                continue
            if parse is None:
                key, size = None, len(line) + _RECORD_OVERHEAD_BYTES
                record: RecordInput = (now_ms, None, line, ())
            else:
                key, value, headers = parse(line, self._line_number)
                size = len(line) + _RECORD_OVERHEAD_BYTES
                record = (now_ms, key, value, headers)
            if key is not None and not self._producer.ignore_keys:
                partition = partition_of_key(key, partitions)
            else:
                if not 0 <= self._sticky < partitions:
                    self._sticky = self._random.randrange(partitions)
                partition = self._sticky
            gathered = self._gathered.get(partition)
            if gathered is None:
                gathered = self._gathered[partition] = []
                self._gathered_bytes[partition] = 0
            elif self._gathered_bytes[partition] + size > self._batch_bytes:
                await self._leave_with(partition)
                gathered = self._gathered[partition] = []
                self._gathered_bytes[partition] = 0
            gathered.append(record)
            self._gathered_bytes[partition] += size
            if self._sync:
                await self._leave_with(partition)
                await self._acknowledged()
        await self._leave(everything=False)

    async def _acknowledged(self) -> None:
        """With --sync, waits for the acknowledgement of the line that was just sent. A failure ends the tool."""
        for future in list(self._under_way):
            await asyncio.wait([future])
        if self._failed:
            raise JesenskaError(f"Line number {self._line_number} was not acknowledged; nothing after it was sent.")

    async def _leave(self, *, everything: bool) -> None:
        """Sends the collected records if no batch is in progress, or if `everything` is set."""
        if everything or not self._under_way:
            for partition in list(self._gathered):
                await self._leave_with(partition)

    async def _leave_with(self, partition: int) -> None:
        while len(self._under_way) >= _BATCHES_UNDER_WAY:
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        records = self._gathered.pop(partition)
        del self._gathered_bytes[partition]
        if partition == self._sticky:
            self._sticky = -1
        encoded = encode_batch(records, self._producer.compression, level=self._producer.compression_level)
        future = await self._producer.send_batch(self._topic, partition, encoded, len(records))
        self._under_way.add(future)
        future.add_done_callback(partial(self._done, len(records)))

    def _done(self, count: int, future: asyncio.Future[tuple[int, int]]) -> None:
        self._under_way.discard(future)
        if not future.cancelled() and (error := future.exception()) is not None:
            what = "A record" if count == 1 else f"{count} records"
            said = sentence(error) if isinstance(error, KafkaError) else repr(error)
            self._fail(f"{what} for topic {self._topic} could not be delivered: {said}")

    def _fail(self, text: str) -> None:
        self._failed = True
        print(f"kafka-console-producer: {text}", file=sys.stderr, flush=True)


def _prompt(wanted: bool) -> None:
    if wanted:
        print(">", end="", flush=True)


async def _piece(descriptor: int) -> bytes:
    """Reads from a descriptor as soon as it has data. Returns empty bytes at the end of the input. A regular file, for
    which the event loop cannot wait, is read immediately."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(descriptor, _wake, ready)
    except PermissionError:
        await asyncio.sleep(0)
    else:
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)
    return os.read(descriptor, _PIECE_BYTES)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


if __name__ == "__main__":
    sys.exit(main())
