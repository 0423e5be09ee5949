"""kafka-producer-perf-test: sends records as fast as possible, or at a given rate, and prints the measured rates.
Flags and output lines are those of Kafka 4.3.1's tool.

By default records are made and encoded a whole batch at a time: the compiled encoder writes `batch.size` bytes in one
call. The batch is passed to jesenska's producer and acknowledged by the broker; one batch of a partition is in
progress at a time. A program that sends large amounts of data would work in this way. With --each-record every record
is passed to the producer's send(), as an application would do, which costs far more.

A record's latency is the time from its creation to the acknowledgement of its batch. With --throughput the latency
begins at the time when the record was due, if the tool can reach the rate. Without --throughput, most of the latency
is the time that records wait in `buffer.memory`, as in Kafka's tool. Rates are for the time from the first record to
the last acknowledgement, without the time to connect.

Values are random letters A to Z, lines of a file in random order, or numbers. A batch goes to a random partition.

With --transactional-id, --transaction-duration-ms or the setting transactional.id all records are written in
transactions. A transaction is committed at the first batch (with --each-record: record) after the duration, and the
last transaction at the end. The id of --transactional-id overrides the id in the settings. The default id is
performance-producer- followed by random characters; the default duration is three seconds. Commits are included in the
rates.

--print-metrics is not supported."""

from __future__ import annotations

import argparse
import asyncio
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from jesenska.base.clock import system_random
from jesenska.base.errors import JesenskaError, KafkaError
from jesenska.cli.kafka.records.perf_figures import Latencies
from jesenska.cli.shared.tool import (
    Parser,
    add_bootstrap,
    add_output,
    client_settings,
    cluster_of,
    print_json,
    properties_of,
    read_properties,
    run_async,
    sentence,
)
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer, RecordMetadata
from jesenska.config.settings.client_settings import PRODUCER_SETTINGS
from jesenska.records.encode import encode_batch
from jesenska.records.header import HEADER_SIZE, Codec
from jesenska.records.record import RecordInput

#: Upper limit on the bytes of a record in addition to its value.
_RECORD_OVERHEAD_BYTES = 26
_LETTERS_BYTES = 1024 * 1024
_ID_PREFIX, _DURATION_MS = "performance-producer-", 3000
_FILE_LIMIT_BYTES = 1024 * 1024 * 1024


def _parser() -> Parser:
    parser = Parser("kafka-producer-perf-test", "Sends records and measures how fast that is.")
    add_bootstrap(parser)
    _add_records(parser)
    parser.add_argument(
        "--producer-props",
        "--command-property",
        nargs="+",
        action="extend",
        dest="property_list",
        metavar="NAME=VALUE",
        help="Settings of the producer.",
    )
    parser.add_argument(
        "--producer.config", dest="producer_config", metavar="FILE", help="Older name of --command-config."
    )
    parser.add_argument(
        "--warmup-records",
        type=int,
        default=0,
        metavar="N",
        help="Leave the first records out of a second summary (default: 0).",
    )
    parser.add_argument(
        "--reporting-interval",
        type=int,
        default=5000,
        metavar="MS",
        help="How often to say how it goes (default: 5000).",
    )
    parser.add_argument(
        "--each-record",
        action="store_true",
        help="Hand over one record after another instead of whole batches (not in Kafka's tool).",
    )
    parser.add_argument(
        "--transactional-id",
        metavar="ID",
        help="Write in transactions under this name (goes before the setting transactional.id).",
    )
    parser.add_argument(
        "--transaction-duration-ms",
        type=int,
        metavar="MS",
        help="Write in transactions, and commit each after this time (default of transactions: 3000).",
    )
    parser.add_argument("--print-metrics", action="store_true", help=argparse.SUPPRESS)
    add_output(parser)
    return parser


def _add_records(parser: Parser) -> None:
    parser.add_argument("--topic", required=True, metavar="TOPIC", help="Produce records to this topic.")
    parser.add_argument("--num-records", required=True, type=int, metavar="N", help="How many records to produce.")
    parser.add_argument(
        "--throughput",
        required=True,
        type=float,
        metavar="N",
        help="Records per second, approximately; -1 for as many as it can.",
    )
    values = parser.add_mutually_exclusive_group(required=True)
    values.add_argument(
        "--record-size", type=int, metavar="BYTES", help="Size of each record's value, made of random letters."
    )
    values.add_argument(
        "--payload-file",
        metavar="FILE",
        help="Take the values from this text file, one drawn at random for each record.",
    )
    values.add_argument("--payload-monotonic", action="store_true", help="The values are the numbers 0, 1, 2, ...")
    parser.add_argument(
        "--payload-delimiter",
        default="\\n",
        metavar="TEXT",
        help="What separates the values in the file (default: \\n).",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    _check(parser, options)
    texts = read_properties(options.producer_config or options.command_config) | properties_of(options.property_list)
    options.bootstrap_server = options.bootstrap_server or texts.get("bootstrap.servers")
    settings = client_settings(parser, PRODUCER_SETTINGS, texts)
    values = _values(options)
    if values.largest + _RECORD_OVERHEAD_BYTES + HEADER_SIZE > settings["max.request.size"]:
        raise JesenskaError(
            f"A record of {values.largest} bytes is more than max.request.size allows "
            f"({settings['max.request.size']} bytes)."
        )
    transactional_id = _transactional_id(options, settings["transactional.id"])
    compression = settings["compression.type"]
    level_name = f"compression.{compression}.level"
    async with cluster_of(options, texts, PRODUCER_SETTINGS) as cluster:
        await cluster.topic(options.topic, create=True)
        producer = Producer(
            cluster,
            acks=-1 if settings["acks"] == "all" else int(settings["acks"]),
            enable_idempotence=settings["enable.idempotence"] if "enable.idempotence" in texts else None,
            compression=Codec[compression.upper()],
            compression_level=settings[level_name] if level_name in texts else None,
            batch_size=settings["batch.size"],
            linger_seconds=settings["linger.ms"] / 1000,
            max_request_size=settings["max.request.size"],
            buffer_memory=settings["buffer.memory"],
            delivery_timeout_seconds=settings["delivery.timeout.ms"] / 1000,
            max_block_seconds=settings["max.block.ms"] / 1000,
            retries=settings["retries"],
            transactional_id=transactional_id,
            transaction_timeout_seconds=settings["transaction.timeout.ms"] / 1000,
        )
        async with producer:
            if transactional_id is not None:
                await producer.init_transactions()
            return await _Load(cluster, producer, values, options).run()


def _check(parser: Parser, options: argparse.Namespace) -> None:
    if options.transaction_duration_ms is not None and options.transaction_duration_ms <= 0:
        parser.error("--transaction-duration-ms should be greater than zero")
    if options.transactional_id == "":
        parser.error("--transactional-id is empty: give a name, or leave it out")
    if options.print_metrics:
        raise JesenskaError("Metrics are not published yet: leave --print-metrics out.")
    if options.num_records <= 0:
        parser.error("--num-records should be greater than zero")
    if options.throughput == 0 or options.throughput != options.throughput:
        parser.error("--throughput is records per second, or -1 for as many as it can")
    if options.record_size is not None and options.record_size <= 0:
        parser.error("--record-size should be greater than zero")
    if not 0 <= options.warmup_records < options.num_records:
        parser.error("--warmup-records must be smaller than --num-records")
    if options.reporting_interval <= 0:
        parser.error("--reporting-interval should be greater than zero")


def _transactional_id(options: argparse.Namespace, setting: str | None) -> str | None:
    """Returns the transactional id. Returns None if transactions are not used."""
    found: str | None = options.transactional_id or setting
    if found is None and options.transaction_duration_ms is not None:
        return f"{_ID_PREFIX}{uuid.UUID(bytes=system_random().randbytes(16), version=4)}"
    return found


class Values:
    """Makes the values of the records. `draw` returns the value for a record's number."""

    def __init__(self, draw: Callable[[int], bytes], largest: int) -> None:
        self._draw = draw
        self.largest = largest
        self._kept: bytes | None = None

    def batch(self, first: int, limit: int, room: int, now_ms: int) -> tuple[list[RecordInput], int]:
        """Returns two values. The first is a list of records, beginning with the record number `first`: up to `limit`
        records that fit into `room` bytes, but at least one record. The second is the total number of bytes of the
        records' values."""
        records: list[RecordInput] = []
        total = 0
        draw = self._draw
        for number in range(first, first + limit):
            value = self._kept if self._kept is not None else draw(number)
            self._kept = None
            room -= len(value) + _RECORD_OVERHEAD_BYTES
            if room < 0 and records:
                self._kept = value
                break
            records.append((now_ms, None, value, ()))
            total += len(value)
        return records, total


def _values(options: argparse.Namespace) -> Values:
    if options.payload_monotonic:
        return Values(lambda number: b"%d" % number, 20)
    random = system_random()
    if options.payload_file is not None:
        lines = _lines(options.payload_file, options.payload_delimiter)
        return Values(lambda _: random.choice(lines), max(map(len, lines)))
    # Each value is a slice of a long string of random letters, from a different position. Choosing each letter at
    # random would take most of the measured time.
    size: int = options.record_size
    letters = random.randbytes(_LETTERS_BYTES + size).translate(bytes(65 + number % 26 for number in range(256)))
    step = size + 4099
    return Values(lambda number: letters[(at := number * step % _LETTERS_BYTES) : at + size], size)


def _lines(path: str, delimiter: str) -> list[bytes]:
    separator = delimiter.encode().decode("unicode_escape").encode()
    try:
        if Path(path).stat().st_size > _FILE_LIMIT_BYTES:
            raise JesenskaError(f"The file {path} has more than {_FILE_LIMIT_BYTES >> 20} MiB: give a part of it.")
        data = Path(path).read_bytes()
    except OSError as error:
        raise JesenskaError(f"The file {path} cannot be read ({error.strerror}): name one that exists.") from error
    if not separator:
        raise JesenskaError("--payload-delimiter is empty: give what stands between the values.")
    lines = data.split(separator)
    if lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise JesenskaError(f"The file {path} holds no values: put at least one into it.")
    return lines


class _Load:
    """One run of the tool: makes records when they are due, and records the measurements."""

    def __init__(self, cluster: Cluster, producer: Producer, values: Values, options: argparse.Namespace) -> None:
        self._cluster, self._producer, self._values, self._options = cluster, producer, values, options
        self._clock = cluster.clock
        self._total: int = options.num_records
        self._rate: float | None = options.throughput if options.throughput > 0 else None
        self._json = options.output == "json"
        self._random = system_random()
        self._began = self._last = self._clock.monotonic()
        self._all = Latencies(self._began)
        self._window = Latencies(self._began)
        self._steady: Latencies | None = None
        self._failures: dict[str, int] = {}
        self._transaction_seconds = (options.transaction_duration_ms or _DURATION_MS) / 1000
        #: The time when the open transaction began; None if no transaction is open.
        self._transaction_began: float | None = None

    async def run(self) -> int:
        if self._options.warmup_records and not self._json:
            print(
                f"Warmup first {self._options.warmup_records} records. Steady state results will print after the "
                f"complete test summary."
            )
        await (self._send_records() if self._options.each_record else self._send_batches())
        await (self._commit() if self._transaction_began is not None else self._producer.flush())
        await asyncio.sleep(0)  # the callbacks of the last records
        if self._json:
            document = self._all.document(self._last)
            print_json(
                document | ({"steadyState": self._steady.document(self._last)} if self._steady is not None else {})
            )
        else:
            print(self._all.total_line(self._last), flush=True)
            if self._steady is not None:
                print(self._steady.total_line(self._last, steady=True), flush=True)
        for text, count in self._failures.items():
            print(f"kafka-producer-perf-test: {count} records were not acknowledged: {text}", file=sys.stderr)
        return 1 if self._failures else 0

    # --- sending -----------------------------------------------------------------------------------------------------

    async def _send_batches(self) -> None:
        producer, clock, topic = self._producer, self._clock, self._options.topic
        partitions = len((await self._cluster.topic(topic)).partitions)
        room = producer.batch_size - HEADER_SIZE
        sent, before = 0, self._began
        while sent < self._total:
            limit = self._total - sent if self._rate is None else await self._until_due(sent, room)
            now = clock.monotonic()
            records, size = self._values.batch(sent, limit, room, clock.now_ms())
            self._begin(now)
            encoded = encode_batch(records, producer.compression, level=producer.compression_level)
            future = await producer.send_batch(topic, self._random.randrange(partitions), encoded, len(records))
            future.add_done_callback(self._batch_done(sent, len(records), size, now, before))
            sent += len(records)
            before = now
            await asyncio.sleep(0)
            await self._end_in_time()

    async def _send_records(self) -> None:
        for number in range(self._total):
            before = self._clock.monotonic()
            if self._rate is not None and (wait := self._began + number / self._rate - before) > 0:
                await asyncio.sleep(wait)
            now = self._clock.monotonic()
            [(_, _, value, _)], size = self._values.batch(number, 1, 0, 0)
            self._begin(now)
            future = await self._producer.send(self._options.topic, bytes(value or b""))
            future.add_done_callback(self._record_done(number, size, now))
            if number % 64 == 0:
                await asyncio.sleep(0)
            await self._end_in_time()

    def _begin(self, now: float) -> None:
        """Begins a transaction, if transactions are used and none is open."""
        if self._producer.transactions is not None and self._transaction_began is None:
            self._producer.begin_transaction()
            self._transaction_began = now

    async def _end_in_time(self) -> None:
        """Commits the open transaction if its duration has passed."""
        if (
            self._transaction_began is not None
            and self._clock.monotonic() - self._transaction_began >= self._transaction_seconds
        ):
            await self._commit()

    async def _commit(self) -> None:
        self._transaction_began = None
        await self._producer.commit_transaction()
        self._last = max(self._last, self._clock.monotonic())

    async def _until_due(self, sent: int, room: int) -> int:
        """Waits until a batch is full at the requested rate, or until linger.ms has passed for the batch's first
        record. Returns the number of records that are due at that time."""
        assert self._rate is not None
        full = max(1, room // (self._values.largest + _RECORD_OVERHEAD_BYTES))
        first = self._began + sent / self._rate
        leave = min(first + self._producer.linger_seconds, self._began + (sent + full - 1) / self._rate)
        wait = leave - self._clock.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        due = int((self._clock.monotonic() - self._began) * self._rate) + 1 - sent
        return min(self._total - sent, max(1, due))

    # --- figures -----------------------------------------------------------------------------------------------------

    def _batch_done(
        self, first: int, count: int, size: int, made_at: float, before: float
    ) -> Callable[[asyncio.Future[tuple[int, int]]], None]:
        def done(future: asyncio.Future[tuple[int, int]]) -> None:
            if self._failed(future, count):
                return
            now = self._clock.monotonic()
            if self._rate is None:
                self._add(first, count, (now - made_at) * 1000, size, now)
                return
            # Each record was due at its own time. Records that were due before the previous batch was made are counted
            # as due at the time of that batch.
            each = size // count
            for number in range(first, first + count):
                due = min(made_at, max(before, self._began + number / self._rate))
                self._add(number, 1, (now - due) * 1000, each if number > first else size - each * (count - 1), now)

        return done

    def _record_done(self, number: int, size: int, made_at: float) -> Callable[[asyncio.Future[RecordMetadata]], None]:
        def done(future: asyncio.Future[RecordMetadata]) -> None:
            if not self._failed(future, 1):
                now = self._clock.monotonic()
                self._add(number, 1, (now - made_at) * 1000, size, now)

        return done

    def _add(self, first: int, count: int, latency_ms: float, size: int, now: float) -> None:
        self._last = now
        self._all.add(latency_ms, count, size)
        self._window.add(latency_ms, count, size)
        warmup = self._options.warmup_records
        if warmup and first + count > warmup:
            if self._steady is None:
                self._steady = Latencies(now - latency_ms / 1000)
            steady = min(count, first + count - warmup)
            self._steady.add(latency_ms, steady, size * steady // count)
        if now - self._window.began >= self._options.reporting_interval / 1000:
            if not self._json:
                print(self._window.window_line(now), flush=True)
            self._window = Latencies(now)

    def _failed(self, future: asyncio.Future[tuple[int, int]] | asyncio.Future[RecordMetadata], count: int) -> bool:
        error = KafkaError("the tool was interrupted") if future.cancelled() else future.exception()
        if error is None:
            return False
        text = sentence(error)
        self._failures[text] = self._failures.get(text, 0) + count
        return True


if __name__ == "__main__":
    sys.exit(main())
