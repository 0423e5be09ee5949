"""kafka-get-offsets: prints an offset of each partition: the log end offset, the first offset, the offset of the
record with the largest timestamp, or the offset of the first record at or after a time in ms. There is one line per
partition, `topic:partition:offset`, as in Apache Kafka 4.3.1's tool. A partition without a record at or after the time
has no line.

    --topic PATTERN [--partitions 0,2]
    --topic-partitions 'a:0,b.*:1-3,:2-'     patterns of topics, each with a partition or with a range, whose
                                             end is excluded"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.shared.tool import Parser, add_bootstrap, add_output, cluster_of, print_json, run_async, telling
from jesenska.client.offsets import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP, list_offsets
from jesenska.pipeline.patterns import topic_pattern

_TIMES = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
}
_RULE = re.compile(r"([^:,]*)(?::(\d*)(-?)(\d*))?\Z")

Filter = Callable[[TopicPartition], bool]


def _parser() -> Parser:
    parser = Parser("kafka-get-offsets", "Prints the offsets of partitions at a time.")
    add_bootstrap(parser, old_name="--broker-list")
    parser.add_argument("--topic", metavar="PATTERN", help="A regular expression of topics (all topics without it).")
    parser.add_argument("--partitions", metavar="N,N", help="Only partitions with these numbers.")
    parser.add_argument(
        "--topic-partitions",
        metavar="RULES",
        help="Patterns with partitions: TOPIC:N, TOPIC:N-M (without M), TOPIC:N-, TOPIC:-M, TOPIC.",
    )
    parser.add_argument(
        "--time", default="latest", metavar="TIME",
        help="-1 or latest (the default), -2 or earliest, -3 or max-timestamp, -4 or earliest-local, -5 or "
             "latest-tiered, or a time in ms.",
    )  # fmt: skip
    parser.add_argument("--exclude-internal-topics", action="store_true", help="Leave Kafka's own topics out.")
    for old in ("--offsets", "--max-wait-ms"):
        parser.add_argument(old, help=argparse.SUPPRESS)
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    if options.topic_partitions is not None and (options.topic is not None or options.partitions is not None):
        parser.error("--topic-partitions cannot be used with --topic or --partitions")
    time = _time(options.time)
    matches = _filter(options)
    async with cluster_of(options) as cluster, telling("Waiting for the brokers"):
        topics = (await cluster.topics()).values()
        wanted = sorted(
            item.topic_partition
            for topic in topics
            if not (options.exclude_internal_topics and topic.is_internal)
            for item in topic.partitions
            if matches(item.topic_partition)
        )
        if not wanted:
            raise JesenskaError(
                "Could not match any topic-partitions with the specified filters: kafka-topics --describe shows "
                "those that exist."
            )
        found = await list_offsets(cluster, dict.fromkeys(wanted, time))
    lines = [(key, found[key].offset) for key in wanted if found[key].offset >= 0]
    if options.output == "json":
        print_json([{"topic": key.topic, "partition": key.partition, "offset": offset} for key, offset in lines])
    else:
        for key, offset in lines:
            print(f"{key.topic}:{key.partition}:{offset}")
    return 0


def _time(text: str) -> int:
    known = _TIMES.get(text)
    if known is None and re.fullmatch(r"-?\d{1,18}", text):
        known = int(text)
    if known is None or known < min(_TIMES.values()):
        raise JesenskaError(
            f"Malformed time argument {text}: use -1 or latest, -2 or earliest, -3 or max-timestamp, -4 or "
            f"earliest-local, -5 or latest-tiered, or ms."
        )
    return known


def _filter(options: argparse.Namespace) -> Filter:
    if options.topic_partitions is not None:
        rules = [_rule(text.strip()) for text in options.topic_partitions.split(",")]
        return lambda key: any(rule(key) for rule in rules)
    pattern = topic_pattern(options.topic) if options.topic is not None else None
    numbers: set[int] | None = None
    if options.partitions is not None:
        pieces = [piece.strip() for piece in options.partitions.split(",") if piece.strip()]
        if not all(re.fullmatch(r"\d{1,9}", piece) for piece in pieces):
            raise JesenskaError(
                f"--partitions expects a comma separated list of numeric partition ids, but received: "
                f"{options.partitions}."
            )
        numbers = set(map(int, pieces))
    return lambda key: (
        (pattern is None or pattern.fullmatch(key.topic) is not None) and (numbers is None or key.partition in numbers)
    )


def _rule(text: str) -> Filter:
    match = _RULE.match(text)
    if not match:
        raise JesenskaError(f"Invalid rule specification {text!r}: write TOPIC:PARTITION, TOPIC:FROM-TO or TOPIC.")
    topic, lower, dash, upper = match[1], match[2] or "", match[3] or "", match[4] or ""
    pattern = topic_pattern(topic) if topic else None
    first = int(lower) if lower else 0
    end = int(upper) if upper else sys.maxsize if dash or not lower else first + 1
    return lambda key: (pattern is None or pattern.fullmatch(key.topic) is not None) and first <= key.partition < end


if __name__ == "__main__":
    sys.exit(main())
