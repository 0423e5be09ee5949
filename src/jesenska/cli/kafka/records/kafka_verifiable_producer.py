"""kafka-verifiable-producer: sends the numbers 0, 1, 2, … to a topic and prints for each number a JSON line that says
if its record was acknowledged. Flags and output are those of Apache Kafka 4.3.1's tool, which Kafka's system tests
use:

    {"timestamp":1795264178546,"name":"startup_complete"}
    {"timestamp":1795264179088,"name":"producer_send_success","key":null,"value":"0","offset":0,"topic":"t",
     "partition":0}
    {"timestamp":1795264179106,"name":"shutdown_complete"}
    {"timestamp":1795264179108,"name":"tool_data","sent":1,"acked":1,"target_throughput":-1,"avg_throughput":8.7}

A record that could not be sent is reported as a `producer_send_error`. SIGINT, SIGTERM and SIGHUP end the tool
cleanly; it then prints the last two lines. Unlike in Kafka's tool, the exit code is 1 if a record was not
acknowledged."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from jesenska.base.errors import KafkaError
from jesenska.cli.kafka.records.verifiable import Events, Stop, stopping
from jesenska.cli.shared.tool import (
    Parser,
    add_bootstrap,
    client_settings,
    cluster_of,
    read_properties,
    run_async,
    sentence,
)
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer, RecordMetadata
from jesenska.config.settings.client_settings import PRODUCER_SETTINGS
from jesenska.records.header import Codec

_BETWEEN_PAUSES = 64


def _parser() -> Parser:
    parser = Parser(
        "kafka-verifiable-producer", "Produces increasing integers and prints as JSON which of them were acknowledged."
    )
    add_bootstrap(parser, old_name="--broker-list")
    parser.add_argument("--topic", required=True, metavar="TOPIC", help="Produce messages to this topic.")
    parser.add_argument(
        "--max-messages",
        type=int,
        default=-1,
        metavar="N",
        help="How many; -1: until the process is ended (default: -1).",
    )
    parser.add_argument(
        "--throughput",
        type=int,
        default=-1,
        metavar="N",
        help="Messages per second, approximately; -1 for as many as it can (default: -1).",
    )
    parser.add_argument(
        "--acks", type=int, choices=[-1, 0, 1], default=-1, help="Acks required of each message (default: -1, all)."
    )
    parser.add_argument(
        "--message-create-time",
        type=int,
        default=-1,
        metavar="MS",
        help="Creation times begin here, in ms (default: -1, the clock).",
    )
    parser.add_argument("--value-prefix", type=int, metavar="N", help="Each value has this number and a dot before it.")
    parser.add_argument(
        "--repeating-keys", type=int, metavar="N", help="Keys 0 to N - 1, again and again (default: no keys)."
    )
    parser.add_argument(
        "--producer.config", dest="producer_config", metavar="FILE", help="Older name of --command-config."
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    if options.throughput == 0:
        parser.error("--throughput is messages per second, or -1 for as many as it can")
    if options.repeating_keys is not None and options.repeating_keys <= 0:
        parser.error("--repeating-keys should be greater than zero")
    texts = read_properties(options.producer_config or options.command_config)
    settings = client_settings(parser, PRODUCER_SETTINGS, texts)
    async with cluster_of(options, texts, PRODUCER_SETTINGS) as cluster:
        with stopping() as stop:
            producer = Producer(
                cluster,
                acks=options.acks,
                compression=Codec[settings["compression.type"].upper()],
                batch_size=settings["batch.size"],
                linger_seconds=settings["linger.ms"] / 1000,
                max_request_size=settings["max.request.size"],
                buffer_memory=settings["buffer.memory"],
                delivery_timeout_seconds=settings["delivery.timeout.ms"] / 1000,
                max_block_seconds=settings["max.block.ms"] / 1000,
                retries=settings["retries"],
            )
            return await _Load(cluster, producer, stop, options).run()


class _Load:
    """One run of the tool: sends records, and counts the acknowledged records."""

    def __init__(self, cluster: Cluster, producer: Producer, stop: Stop, options: argparse.Namespace) -> None:
        self._clock, self._producer, self._stop, self._options = cluster.clock, producer, stop, options
        self._events = Events(cluster.clock)
        self._sent = self._acked = 0
        #: The error that a callback got when it tried to print, because the reader of the output has ended.
        self._unheard: BrokenPipeError | None = None

    async def run(self) -> int:
        began = self._clock.monotonic()
        self._events.say("startup_complete")
        async with self._producer:
            await self._send_until_stopped(began)
            await self._producer.flush()
        await asyncio.sleep(0)  # the callbacks of the last records
        if self._unheard is not None:
            raise self._unheard
        self._events.say("shutdown_complete")
        seconds = self._clock.monotonic() - began
        throughput = {
            "target_throughput": self._options.throughput,
            "avg_throughput": self._acked / seconds if seconds > 0 else 0.0,
        }
        self._events.say("tool_data", sent=self._sent, acked=self._acked, **throughput)
        return self._stop.exit_code or int(self._acked < self._sent)

    async def _send_until_stopped(self, began: float) -> None:
        """Sends all records. Returns earlier if a signal stops the tool, even while a record waits for a broker's
        response."""
        sending, stopped = asyncio.ensure_future(self._send_all(began)), asyncio.ensure_future(self._stop.stopped())
        await asyncio.wait((sending, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending

    async def _send_all(self, began: float) -> None:
        options, rate = self._options, self._options.throughput
        while self._unheard is None and not self._stop.is_set and not 0 <= options.max_messages <= self._sent:
            wait = began + self._sent / rate - self._clock.monotonic() if rate > 0 else 0.0
            if wait > 0 and await self._stop.wait(wait):
                return
            number = self._sent
            key = None if options.repeating_keys is None else str(number % options.repeating_keys)
            value = str(number) if options.value_prefix is None else f"{options.value_prefix}.{number}"
            elapsed_ms = int((self._clock.monotonic() - began) * 1000)
            timestamp_ms = None if options.message_create_time < 0 else options.message_create_time + elapsed_ms
            try:
                future = await self._producer.send(
                    options.topic, value.encode(), None if key is None else key.encode(), timestamp_ms=timestamp_ms
                )
            except KafkaError as error:
                self._sent += 1
                self._failed(key, value, error)
                continue
            self._sent += 1
            future.add_done_callback(self._done(key, value))
            if number % _BETWEEN_PAUSES == 0:
                await asyncio.sleep(0)

    def _done(self, key: str | None, value: str) -> Callable[[asyncio.Future[RecordMetadata]], None]:
        def done(future: asyncio.Future[RecordMetadata]) -> None:
            error = KafkaError("the tool was interrupted") if future.cancelled() else future.exception()
            try:
                if error is not None:
                    self._failed(key, value, error)
                    return
                self._acked += 1
                found = future.result()
                self._events.say(
                    "producer_send_success",
                    key=key,
                    value=value,
                    offset=found.offset,
                    topic=found.topic,
                    partition=found.partition,
                )
            except BrokenPipeError as broken:
                self._unheard = broken

        return done

    def _failed(self, key: str | None, value: str, error: BaseException) -> None:
        about = {"exception": type(error).__name__, "message": sentence(error)}
        self._events.say("producer_send_error", topic=self._options.topic, key=key, value=value, **about)


if __name__ == "__main__":
    sys.exit(main())
