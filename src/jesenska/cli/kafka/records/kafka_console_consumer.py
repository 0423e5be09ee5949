"""kafka-console-consumer: prints the records of topics. Flags and output are those of Apache Kafka 4.3.1's tool and of
older releases.

With --group (or group.id among the settings) the tool reads as a member of that group. It commits the offsets of the
printed records, and leaves the group at the end. Otherwise it reads all partitions of the topics without a group,
including partitions that are added later. `--zookeeper`, from the releases before 2.0, finds the brokers in
ZooKeeper's nodes; groups are still managed by the brokers (0.8 stored groups in ZooKeeper). The tool ends after
--max-messages, after --timeout-ms without a record (exit code 0, as in Kafka's tool), or on a signal. At its end the
tool prints the number of printed records on stderr.

If the topic does not exist, the tool waits until it exists, as Kafka's tool does, and prints one line about that on
stderr. Brokers that create topics automatically create the topic, except with `allow.auto.create.topics=false`.
Differs from Kafka's tool: a partition that does not exist is an error. Custom formatters, and those of internal topics
that jesenska does not have, are not supported."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from jesenska.base.errors import GroupIdNotFoundError, JesenskaError, NetworkException, RequestTimedOutError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.records.console_group_records import GroupRecordFormatter
from jesenska.cli.kafka.records.console_reading import (
    Assigned,
    ReadingMember,
    ReadTopics,
    RecordReader,
    fetch_options,
    group_of,
    group_options,
)
from jesenska.cli.kafka.records.console_records import (
    PROPERTIES,
    JsonFormatter,
    LoggingFormatter,
    NothingFormatter,
    RecordFormatter,
)
from jesenska.cli.shared.stop_signals import heeded_signals
from jesenska.cli.shared.tool import (
    Parser,
    add_bootstrap,
    add_output,
    client_settings,
    cluster_of,
    meant,
    properties_of,
    read_properties,
    run_async,
    sentence,
    telling,
)
from jesenska.cli.shared.zookeeper_option import add_zookeeper
from jesenska.client.administration.admin import Admin
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer, Fetched
from jesenska.client.group import GroupConsumer
from jesenska.client.offsets import EARLIEST, LATEST
from jesenska.config.settings.client_settings import CONSUMER_SETTINGS
from jesenska.groups.records import GroupRecord, OffsetRecord
from jesenska.pipeline.patterns import topic_pattern
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batch
from jesenska.records.record import Record

_POLL_SECONDS = 0.5
#: The interval in seconds between look-ups of topics while no topic matches the pattern.
_LOOK_SECONDS = 1.0
#: The Java packages of Kafka's formatters: in releases since 3.5, and in earlier releases.
_FORMATTER_PACKAGES = (
    "org.apache.kafka.tools.consumer.",
    "kafka.tools.",
    "kafka.coordinator.group.GroupMetadataManager$",
)
_FORMATTERS = (
    "DefaultMessageFormatter",
    "LoggingMessageFormatter",
    "NoOpMessageFormatter",
    "OffsetsMessageFormatter",
    "GroupMetadataMessageFormatter",
)


class Formatter(Protocol):
    @property
    def unknown(self) -> Sequence[str]: ...

    def lines(self, partition: TopicPartition, records: Sequence[Record]) -> bytes: ...


def _parser() -> Parser:
    parser = Parser("kafka-console-consumer", "Prints the records of topics.")
    add_bootstrap(parser)
    add_zookeeper(parser)
    _add_reading(parser)
    _add_printing(parser)
    parser.add_argument(
        "--command-property",
        "--consumer-property",
        action="append",
        dest="property_list",
        metavar="NAME=VALUE",
        help="A setting of the consumer.",
    )
    parser.add_argument(
        "--consumer.config", dest="consumer_config", metavar="FILE", help="Older name of --command-config."
    )
    parser.add_argument(
        "--delete-consumer-offsets",
        action="store_true",
        help="Forget what the group has committed before it begins (0.8 to 1.1).",
    )
    parser.add_argument(
        "--skip-message-on-error", action="store_true", help="Go on after a record that cannot be printed."
    )
    parser.add_argument("--enable-systest-events", action="store_true", help=argparse.SUPPRESS)
    for old in ("--new-consumer", "--csv-reporter-enabled"):
        parser.add_argument(old, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--metrics-dir", help=argparse.SUPPRESS)
    add_output(parser)
    return parser


def _add_reading(parser: Parser) -> None:
    parser.add_argument("--topic", metavar="TOPIC", help="The topic to read.")
    parser.add_argument(
        "--include",
        "--whitelist",
        dest="include",
        metavar="PATTERN",
        help="Read all topics whose name this regular expression matches.",
    )
    parser.add_argument(
        "--blacklist", metavar="PATTERN", help="Read all topics but those whose name this matches (0.8 to 1.1)."
    )
    parser.add_argument(
        "--partition",
        type=int,
        metavar="N",
        help="Read this partition only (from its end, unless --offset or --from-beginning is given).",
    )
    parser.add_argument(
        "--offset", metavar="OFFSET", help="Where to begin: a number, earliest, or latest; needs --partition."
    )
    parser.add_argument(
        "--from-beginning", action="store_true", help="Begin with the earliest record, not with what comes from now on."
    )
    parser.add_argument("--max-messages", type=int, metavar="N", help="End after so many records.")
    parser.add_argument("--timeout-ms", type=int, metavar="MS", help="End when no record came for so long.")
    parser.add_argument(
        "--group", metavar="GROUP",
        help="Read as a member of this group: on from what it has committed, or from the end (--from-beginning: the "
             "beginning) if it has nothing.",
    )  # fmt: skip
    parser.add_argument("--isolation-level", metavar="LEVEL", help="read_committed or read_uncommitted (the default).")


def _add_printing(parser: Parser) -> None:
    parser.add_argument(
        "--formatter", metavar="CLASS", help=f"What prints the records: {', '.join(_FORMATTERS)} (default: the first)."
    )
    parser.add_argument(
        "--formatter-property", "--property", action="append", dest="formatter_properties", metavar="NAME=VALUE",
        help="What to print and how: print.key, print.timestamp, print.offset, print.partition, print.headers, "
             "print.value, key.separator, "
        "line.separator, headers.separator, null.literal, key.deserializer, value.deserializer.",
    )  # fmt: skip
    parser.add_argument("--formatter-config", metavar="FILE", help="The same from a property file.")
    parser.add_argument(
        "--key-deserializer",
        metavar="CLASS",
        help="How keys become text: one of Kafka's deserializers, as LongDeserializer.",
    )
    parser.add_argument("--value-deserializer", metavar="CLASS", help="How values become text.")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    _check(parser, options)
    formatter = _formatter(options)
    for name in formatter.unknown:
        print(
            f"kafka-console-consumer: {name} says nothing about how records are printed; it is "
            f"ignored{meant(name, PROPERTIES)}.",
            file=sys.stderr,
        )
    from_file, from_flags = (
        read_properties(options.consumer_config or options.command_config),
        properties_of(options.property_list),
    )
    group = group_of(options, [from_file, from_flags])
    if group is not None and options.partition is not None:
        parser.error("Options group and partition cannot be specified together.")
    texts = from_file | from_flags
    if options.isolation_level is not None:
        texts["isolation.level"] = options.isolation_level
    settings = client_settings(parser, CONSUMER_SETTINGS, texts)
    fetching = fetch_options(settings)
    if options.from_beginning and "auto.offset.reset" in texts and fetching["auto_offset_reset"] != "earliest":
        parser.error(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={fetching['auto_offset_reset']}', "
            f"please remove one option"
        )
    if options.from_beginning:
        fetching["auto_offset_reset"] = "earliest"
    async with cluster_of(options, texts, CONSUMER_SETTINGS) as cluster:
        pattern = _pattern(options)
        internal, creates = not settings["exclude.internal.topics"], bool(settings["allow.auto.create.topics"])
        topics = ReadTopics(cluster, options.topic, pattern, internal=internal, waits=True, creates=creates)
        reader: RecordReader
        if group is not None:
            if options.delete_consumer_offsets:
                await _forget(cluster, group)
            reader = ReadingMember(GroupConsumer(cluster, group, (), **fetching, **group_options(settings)), topics)
        else:
            reader = Assigned(
                Consumer(cluster, **fetching), topics, options.partition, _start(options, fetching["auto_offset_reset"])
            )
        return await _Printer(cluster, reader, formatter, options, check_crcs=settings["check.crcs"]).run()


def _check(parser: Parser, options: argparse.Namespace) -> None:
    if sum(given is not None for given in (options.topic, options.include, options.blacklist)) != 1:
        parser.error("Exactly one of the following arguments is required: --topic, --include")
    if options.csv_reporter_enabled or options.metrics_dir:
        print(
            "kafka-console-consumer: metrics are not written to files; --csv-reporter-enabled and --metrics-dir have "
            "no effect.",
            file=sys.stderr,
        )
    if options.partition is not None and options.topic is None:
        parser.error("The topic is required when partition is specified.")
    if options.partition is not None and options.partition < 0:
        parser.error("--partition must not be negative")
    if options.offset is not None and options.partition is None:
        parser.error("The partition is required when offset is specified.")
    if options.offset is not None and options.from_beginning:
        parser.error("Options from-beginning and offset cannot be specified together.")
    if (
        options.offset is not None
        and options.offset.lower() not in ("earliest", "latest")
        and not (options.offset.isascii() and options.offset.isdigit())
    ):
        parser.error(
            f"The provided offset value '{options.offset}' is incorrect. Valid values are 'earliest', 'latest', or a "
            f"non-negative long."
        )
    if options.max_messages is not None and options.max_messages < 0:
        options.max_messages = None  # as Kafka's tool: no limit


def _pattern(options: argparse.Namespace) -> re.Pattern[str] | None:
    if options.blacklist is not None:
        return re.compile(f"(?!(?:{topic_pattern(options.blacklist).pattern})\\Z).*", re.ASCII)
    return topic_pattern(options.include) if options.include is not None else None


async def _forget(cluster: Cluster, group: str) -> None:
    error = (await Admin(cluster).delete_groups([group]))[group]
    if error is not None and not isinstance(error, GroupIdNotFoundError):
        raise error


def _formatter(options: argparse.Namespace) -> Formatter:
    if options.output == "json":
        return JsonFormatter()
    name = _formatter_name(options.formatter)
    match name:
        case "NoOpMessageFormatter":
            return NothingFormatter()
        case "OffsetsMessageFormatter":
            return GroupRecordFormatter(OffsetRecord)
        case "GroupMetadataMessageFormatter":
            return GroupRecordFormatter(GroupRecord)
    properties = read_properties(options.formatter_config) | properties_of(options.formatter_properties)
    if options.key_deserializer:
        properties["key.deserializer"] = options.key_deserializer
    if options.value_deserializer:
        properties["value.deserializer"] = options.value_deserializer
    return LoggingFormatter(properties) if name == "LoggingMessageFormatter" else RecordFormatter(properties)


def _formatter_name(name: str | None) -> str:
    """Returns a formatter's name without its package. Raises JesenskaError for a formatter that is not built in."""
    if name is None:
        return _FORMATTERS[0]
    short = name
    for package in _FORMATTER_PACKAGES:
        short = short.removeprefix(package)
    if short not in _FORMATTERS:
        raise JesenskaError(
            f"The formatter {name} is a Java class, which cannot be loaded here: {', '.join(_FORMATTERS)} are built in."
        )
    return short


def _start(options: argparse.Namespace, reset: str) -> int:
    if options.offset is not None and options.offset.isdigit():
        return int(options.offset)
    word = options.offset.lower() if options.offset is not None else reset
    return EARLIEST if word == "earliest" else LATEST


class _Printer:
    """Polls and prints records. Ends after the requested number of records, a timeout or a signal."""

    def __init__(
        self,
        cluster: Cluster,
        reader: RecordReader,
        formatter: Formatter,
        options: argparse.Namespace,
        *,
        check_crcs: bool,
    ) -> None:
        self._cluster = cluster
        self._reader = reader
        self._formatter = formatter
        self._options = options
        self._check_crcs = check_crcs
        #: For each partition, the first offset of records that were polled but not printed. A group must not commit a
        #: higher offset.
        self._unprinted: dict[TopicPartition, int] = {}
        self._count = 0
        #: The exit code after a signal: 128 plus the signal's number, as in a shell. 0 without a signal.
        self._terminated = 0
        self._began = False

    async def run(self) -> int:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        # The handler for Ctrl-C is left to the event loop.
        signals = [number for number in heeded_signals() if number != signal.SIGINT]
        for number in signals:
            loop.add_signal_handler(number, self._terminate, task, number)
        try:
            async with telling("Waiting for the broker"):
                await self._reader.look()
            self._began = True
            await self._print_all()
            return 0
        except asyncio.CancelledError:
            if self._terminated:
                return self._terminated
            raise
        finally:
            for partition, offset in self._unprinted.items():
                self._reader.go_back(partition, offset)
            await self._reader.close()
            for number in signals:
                loop.remove_signal_handler(number)
            if self._began or self._terminated:
                print(f"Processed a total of {self._count} messages", file=sys.stderr, flush=True)

    def _terminate(self, task: asyncio.Task[Any], number: int) -> None:
        self._terminated = 128 + number
        task.cancel()

    async def _print_all(self) -> None:
        clock = self._cluster.clock
        limit = self._options.timeout_ms
        last_record = last_look = clock.monotonic()
        while self._left() > 0:
            now = clock.monotonic()
            wait = _POLL_SECONDS if limit is None or limit < 0 else min(_POLL_SECONDS, last_record + limit / 1000 - now)
            if wait <= 0:
                return
            if now - last_look >= (300.0 if not self._reader.idle() else _LOOK_SECONDS):
                last_look = now
                await self._look_again()
            if self._reader.idle():
                await asyncio.sleep(min(wait, _LOOK_SECONDS))
                continue
            taken = await self._reader.poll_raw(wait)
            for fetched in reversed(taken):
                self._unprinted[fetched.topic_partition] = fetched.start_offset
            for fetched in taken:
                if self._print_fetched(fetched):
                    last_record = clock.monotonic()
                if self._left() <= 0:
                    return
            self._unprinted.clear()

    async def _look_again(self) -> None:
        """Adds new topics and partitions. If no broker answers, the next call tries again."""
        with contextlib.suppress(NetworkException, RequestTimedOutError):
            await self._reader.look()

    def _print_fetched(self, fetched: Fetched) -> bool:
        """Prints records batch by batch, so that only one batch is decoded at a time. Returns True if at least one
        record was printed."""
        some = False
        partition = fetched.topic_partition
        for position, header in iter_headers(fetched.data):
            left = self._left()
            if left <= 0:
                break
            if header.is_control or header.last_offset < fetched.start_offset:
                self._unprinted[partition] = max(header.next_offset, fetched.start_offset)
                continue
            records = decode_batch(fetched.data, position, self._check_crcs, header)
            if header.base_offset < fetched.start_offset:
                records = [record for record in records if record.offset >= fetched.start_offset]
            if records:
                some = True
                self._print(partition, records, left)
            if not records or self._unprinted[partition] == records[-1].offset + 1:
                self._unprinted[partition] = header.next_offset
        return some

    def _left(self) -> int:
        return sys.maxsize if self._options.max_messages is None else self._options.max_messages - self._count

    def _print(self, partition: TopicPartition, records: list[Record], left: int) -> None:
        try:
            text = self._formatter.lines(partition, records[:left])
        except JesenskaError:
            # One of the records cannot be printed. All records are printed one by one to find that record.
            for record in records:
                if self._left() <= 0:
                    return
                self._print_one(partition, record)
            return
        self._write(text)
        printed = min(len(records), left)
        self._count += printed
        self._unprinted[partition] = records[printed - 1].offset + 1

    def _print_one(self, partition: TopicPartition, record: Record) -> None:
        try:
            text = self._formatter.lines(partition, [record])
        except JesenskaError as error:
            where = f"{partition}, offset {record.offset}: {sentence(error)}"
            if not self._options.skip_message_on_error:
                raise JesenskaError(f"{where} To skip such records, give --skip-message-on-error.") from error
            print(f"kafka-console-consumer: {where}", file=sys.stderr)
        else:
            self._write(text)
            self._count += 1
        self._unprinted[partition] = record.offset + 1

    @staticmethod
    def _write(text: bytes) -> None:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
