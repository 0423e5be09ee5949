"""kafka-consumer-perf-test: reads records as a member of a group and prints the rates. Flags and columns are those of
Kafka 4.3.1's tool.

The tool fetches batches, tests the checksum of each batch, and decodes every record to an object with its key and
value. Amounts of data are the bytes of keys and values. rebalance.time.ms is the time to join the group (with a
broker's default settings the first member waits three seconds for others), and fetch.time.ms the remaining time. All
records of the last poll are counted, so there may be a few more than requested.

Differs from Kafka's tool: warnings are on stderr. --print-metrics is not supported."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from jesenska.base.clock import system_random
from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.records.console_reading import ReadTopics, fetch_options, group_of, group_options
from jesenska.cli.kafka.records.perf_figures import Consumed, date_text
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
)
from jesenska.cli.shared.zookeeper_option import add_zookeeper
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Fetched
from jesenska.client.group import GroupConsumer
from jesenska.config.settings.client_settings import CONSUMER_SETTINGS
from jesenska.pipeline.patterns import topic_pattern
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batch

_POLL_SECONDS = 0.1
_DATE_FORMAT = "yyyy-MM-dd HH:mm:ss:SSS"


def _parser() -> Parser:
    parser = Parser("kafka-consumer-perf-test", "Reads records and measures how fast that is.")
    add_bootstrap(parser, old_name="--broker-list")
    add_zookeeper(parser)
    _add_reading(parser)
    _add_report(parser)
    parser.add_argument(
        "--command-property",
        action="append",
        dest="property_list",
        metavar="NAME=VALUE",
        help="A setting of the consumer.",
    )
    parser.add_argument(
        "--consumer.config", dest="consumer_config", metavar="FILE", help="Older name of --command-config."
    )
    parser.add_argument("--new-consumer", action="store_true", help=argparse.SUPPRESS)
    for name in (
        "--socket-buffer-size",
        "--threads",
        "--num-fetch-threads",
        "--batch-size",
        "--compression-codec",
        "--message-size",
    ):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--print-metrics", action="store_true", help=argparse.SUPPRESS)
    add_output(parser)
    return parser


def _add_reading(parser: Parser) -> None:
    parser.add_argument("--topic", metavar="TOPIC", help="The topic to read.")
    parser.add_argument(
        "--include", metavar="PATTERN", help="Read all topics whose name this regular expression matches."
    )
    parser.add_argument(
        "--num-records", "--messages", dest="num_records", type=int, metavar="N", help="How many records to read."
    )
    parser.add_argument("--group", metavar="GROUP", help="The group to read as (default: perf-consumer- and a number).")
    parser.add_argument(
        "--from-latest",
        action="store_true",
        help="Begin at the end, where the group has committed nothing (default: at the beginning).",
    )
    parser.add_argument(
        "--fetch-size",
        type=int,
        metavar="BYTES",
        help="Bytes that one fetch asks for of one partition (default: 1048576).",
    )
    parser.add_argument(
        "--timeout",
        type=int,
        default=10_000,
        metavar="MS",
        help="End when no record came for so long (default: 10000).",
    )


def _add_report(parser: Parser) -> None:
    parser.add_argument(
        "--reporting-interval",
        type=int,
        default=5000,
        metavar="MS",
        help="How often to say how it goes (default: 5000).",
    )
    parser.add_argument(
        "--show-detailed-stats", action="store_true", help="A line for each such interval instead of one at the end."
    )
    parser.add_argument("--hide-header", action="store_true", help="Leave the headings out.")
    parser.add_argument(
        "--date-format",
        default=_DATE_FORMAT,
        metavar="FORMAT",
        help=f"How times are written (default: {_DATE_FORMAT}).",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    _check(parser, options)
    from_file, from_flags = (
        read_properties(options.consumer_config or options.command_config),
        properties_of(options.property_list),
    )
    texts = {"auto.offset.reset": "latest" if options.from_latest else "earliest"} | from_file | from_flags
    if options.fetch_size is not None:
        texts["max.partition.fetch.bytes"] = str(options.fetch_size)
    options.bootstrap_server = options.bootstrap_server or texts.get("bootstrap.servers")
    settings = client_settings(parser, CONSUMER_SETTINGS, texts)
    group = group_of(options, [from_file, from_flags]) or f"perf-consumer-{system_random().randrange(100_000)}"
    async with cluster_of(options, texts, CONSUMER_SETTINGS) as cluster:
        pattern = topic_pattern(options.include) if options.include is not None else None
        topics = [topic.name for topic in await ReadTopics(cluster, options.topic, pattern, internal=False).now()]
        if not topics:
            raise JesenskaError(f"No topic matches {options.include!r}: kafka-topics --list shows those that exist.")
        return await _Reading(cluster, options, settings).run(group, topics)


def _check(parser: Parser, options: argparse.Namespace) -> None:
    if (options.topic is None) == (options.include is None):
        parser.error("Exactly one of the following arguments is required: [topic], [include]")
    if options.num_records is None:
        parser.error("Exactly one of the following arguments is required: [messages], [num-records]")
    if options.num_records <= 0:
        parser.error("--num-records should be greater than zero")
    if options.reporting_interval <= 0:
        parser.error("--reporting-interval should be greater than zero")
    if options.timeout < 0:
        parser.error("--timeout must not be negative")
    if options.print_metrics:
        raise JesenskaError("Metrics are not published yet: leave --print-metrics out.")
    try:
        date_text(0, options.date_format)
    except ValueError as error:
        parser.error(f"--date-format: {error}")


class _Reading:
    """One run of the tool: reads, counts and prints."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace, settings: dict[str, Any]) -> None:
        self._clock = cluster.clock
        self._cluster, self._options, self._settings = cluster, options, settings
        self._check_crcs: bool = settings["check.crcs"]
        self._json = options.output == "json"
        self._began_ms = self._clock.now_ms()
        self._began = self._clock.monotonic()
        self._all, self._window = Consumed(self._began), Consumed(self._began)
        self._joining_since: float | None = self._began

    def _revoked(self, _: Sequence[TopicPartition]) -> None:
        self._joining_since = self._clock.monotonic()

    def _assigned(self, _: Sequence[TopicPartition]) -> None:
        if self._joining_since is not None:
            seconds = self._clock.monotonic() - self._joining_since
            self._all.rebalance_seconds += seconds
            self._window.rebalance_seconds += seconds
            self._joining_since = None

    async def run(self, group: str, topics: Sequence[str]) -> int:
        detailed = self._options.show_detailed_stats
        if not self._options.hide_header and not self._json:
            print(
                ", ".join([*(("time", "threadId") if detailed else ("start.time", "end.time")), *Consumed.HEADINGS]),
                flush=True,
            )
        consumer = GroupConsumer(
            self._cluster,
            group,
            topics,
            **fetch_options(self._settings),
            **group_options(self._settings),
            on_assigned=self._assigned,
            on_revoked=self._revoked,
        )
        async with consumer:
            complete = await self._read(consumer)
            ended, ended_ms = self._clock.monotonic(), self._clock.now_ms()
        if not complete:
            print(
                f"WARNING: Exiting before consuming the expected number of records: timeout ({self._options.timeout} "
                f"ms) exceeded. "
                "You can use the --timeout option to increase the timeout.",
                file=sys.stderr,
            )
        if self._json:
            print_json(
                {
                    "startTimeMs": self._began_ms,
                    "endTimeMs": ended_ms,
                    **self._all.document(ended),
                    "complete": complete,
                }
            )
        elif not detailed:
            times = [date_text(moment, self._options.date_format) for moment in (self._began_ms, ended_ms)]
            print(", ".join([*times, *self._all.cells(ended)]), flush=True)
        return 0

    async def _read(self, consumer: GroupConsumer) -> bool:
        """Reads until the requested number of records is reached. Returns False if no record arrived within the
        timeout."""
        last_record = self._began
        interval = self._options.reporting_interval / 1000
        while self._all.count < self._options.num_records:
            for fetched in await consumer.poll_raw(_POLL_SECONDS):
                if self._take(fetched):
                    last_record = self._clock.monotonic()
            now = self._clock.monotonic()
            if now - self._window.began >= interval:
                if self._options.show_detailed_stats and not self._json:
                    cells = self._window.cells(now, self._all)
                    print(
                        ", ".join([date_text(self._clock.now_ms(), self._options.date_format), "0", *cells]), flush=True
                    )
                self._window = Consumed(now)
            if now - last_record > self._options.timeout / 1000:
                return False
            await asyncio.sleep(0)
        return True

    def _take(self, fetched: Fetched) -> bool:
        """Decodes every record and counts it. Returns true if there was a record."""
        count = 0
        size = 0
        for position, header in iter_headers(fetched.data):
            if header.is_control or header.last_offset < fetched.start_offset:
                continue
            records = decode_batch(fetched.data, position, self._check_crcs, header)
            if header.base_offset < fetched.start_offset:
                records = [record for record in records if record.offset >= fetched.start_offset]
            count += len(records)
            size += sum(len(record.key or b"") + len(record.value or b"") for record in records)
        self._all.add(count, size)
        self._window.add(count, size)
        return count > 0


if __name__ == "__main__":
    sys.exit(main())
