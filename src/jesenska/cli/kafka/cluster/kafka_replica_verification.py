"""kafka-replica-verification: reads every replica of partitions from its broker and compares the replicas, as Apache
Kafka 4.3.1's tool does. Flags and output lines are those of Kafka's tools from 0.8.2 on. The tool runs until it is
stopped:

    2026-11-23 12:00:00,000: verification process is started
    2026-11-23 12:00:30,017: max lag is 12 for partition t-1 at offset 300 among 2 partitions
    2026-11-23 12:00:31,020: partition t-1 has unmatched checksum at offset 311; replica 1's checksum 1822338453;
                             replica 2's checksum 905281712                                              (on one line)
    2026-11-23 12:00:31,020: partition t-1: replica 1's offset 320 doesn't match replica 2's offset 321

After a line like the last line above, the tool ends with exit code 1. For programs: with `--reports N` the tool ends
after N reports of the lag, with exit code 1 if there was a difference. `--output json` prints one object per line.

If a broker does not answer, the partitions with replicas on it are not compared until it answers. This is reported on
stderr, once between two reports. Deleted offsets are skipped. Differs from Kafka's tool: the checksum of the received
bytes is also computed and compared, not only the checksum in the batch header. If several partitions have the largest
lag, the first of them by name is reported. The fetched bytes of all replicas are in memory at once."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from jesenska.base.errors import JesenskaError, KafkaError, OffsetOutOfRangeError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.cluster.replica_comparison import Answers, ChecksumsDiffer, OffsetsDiffer, ReplicaComparison
from jesenska.cli.kafka.records.perf_figures import date_text
from jesenska.cli.kafka.records.verifiable import Events
from jesenska.cli.shared.tool import Parser, add_bootstrap, add_output, cluster_of, run_async, sentence, telling
from jesenska.client.cluster import Cluster
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets
from jesenska.client.replica_fetch import FetchedReplica, fetch_replicas
from jesenska.pipeline.patterns import topic_pattern

_DATE_FORMAT = "yyyy-MM-dd HH:mm:ss,SSS"
_PURPOSE = "replica-verification"
_INT_MAX = 2**31 - 1


def _parser() -> Parser:
    parser = Parser("kafka-replica-verification", "Validates that all replicas of a set of topics have the same data.")
    add_bootstrap(parser, old_name="--broker-list")
    parser.add_argument(
        "--topics-include",
        "--topic-white-list",
        default=".*",
        metavar="PATTERN",
        help="A regular expression of topics (default: all).",
    )
    parser.add_argument(
        "--time",
        type=int,
        default=LATEST,
        metavar="MS",
        help="Where to begin: -1 the end (default), -2 the beginning, or a time in ms.",
    )
    parser.add_argument(
        "--fetch-size",
        type=int,
        default=1024 * 1024,
        metavar="BYTES",
        help="Bytes of each replica in a request (default: 1048576).",
    )
    parser.add_argument(
        "--max-wait-ms",
        type=int,
        default=1000,
        metavar="MS",
        help="How long a request waits for something new (default: 1000).",
    )
    parser.add_argument(
        "--report-interval-ms",
        type=int,
        default=30_000,
        metavar="MS",
        help="How often the lag is reported (default: 30000).",
    )
    parser.add_argument(
        "--reports", type=int, metavar="N", help="End after so many reports of the lag (default: go on until stopped)."
    )
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    for name, lowest in (("fetch_size", 1), ("max_wait_ms", 0), ("report_interval_ms", 0), ("reports", 1)):
        value = getattr(options, name)
        if value is not None and not lowest <= value <= _INT_MAX:
            parser.error(f"--{name.replace('_', '-')} must be {lowest} or more")
    if options.time < EARLIEST:
        parser.error("--time must be -1 (the end), -2 (the beginning) or a time in ms")
    pattern = topic_pattern(options.topics_include)
    async with cluster_of(options) as cluster:
        async with telling("Waiting for the brokers"):
            topics = [topic for name, topic in (await cluster.topics()).items() if pattern.fullmatch(name)]
            replicas = {
                item.topic_partition: item.replicas for topic in topics for item in topic.partitions if item.replicas
            }
            if not replicas:
                raise JesenskaError(
                    f"No topics found: no name matches {options.topics_include!r}; kafka-topics --list shows those "
                    f"that exist."
                )
            offsets = await _offsets_at(cluster, replicas, options.time)
        return await _Verification(cluster, options, ReplicaComparison(replicas, offsets)).run()


async def _offsets_at(
    cluster: Cluster, replicas: Mapping[TopicPartition, Sequence[int]], time: int
) -> dict[TopicPartition, int]:
    """Returns the offset of each partition for a timestamp. Returns the log end offset if no record has this timestamp
    or a later one."""
    found = {key: item.offset for key, item in (await list_offsets(cluster, dict.fromkeys(replicas, time))).items()}
    newer = [key for key, offset in found.items() if offset < 0]
    if newer:
        found |= {key: item.offset for key, item in (await list_offsets(cluster, dict.fromkeys(newer, LATEST))).items()}
    return found


class _Verification:
    """One run of the tool: fetches, compares and reports until it is stopped."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace, comparison: ReplicaComparison) -> None:
        self._cluster, self._options, self._comparison = cluster, options, comparison
        self._events = Events(cluster.clock) if options.output == "json" else None
        self._differences = 0
        #: The warnings that were printed on stderr since the last report.
        self._reported: set[tuple[int, str]] = set()
        #: The number of rounds in a row in which a replica could not be read.
        self._failures = 0

    async def run(self) -> int:
        """Runs until the requested number of reports is reached, or until it is stopped. Returns the exit code. Raises
        JesenskaError if replicas cannot be compared any further."""
        clock, options = self._cluster.clock, self._options
        self._say("verification process is started", "started")
        reported_at, reports = clock.monotonic(), 0
        brokers = self._comparison.brokers
        while options.reports is None or reports < options.reports:
            answers = dict(
                zip(brokers, await asyncio.gather(*(self._fetch(broker) for broker in brokers)), strict=True)
            )
            self._compare(answers)
            await self._look_at_errors(answers)
            if (clock.monotonic() - reported_at) * 1000 > options.report_interval_ms:
                self._report()
                reported_at, reports = clock.monotonic(), reports + 1
        return 1 if self._differences else 0

    async def _fetch(self, broker: int) -> dict[TopicPartition, FetchedReplica]:
        """Fetches from all replicas on a broker, and returns the results by partition. Returns an empty dict if the
        broker does not answer."""
        wanted = self._comparison.offsets_on(broker)
        options = self._options
        try:
            return await fetch_replicas(
                self._cluster,
                broker,
                wanted,
                max_wait_ms=options.max_wait_ms,
                max_partition_bytes=options.fetch_size,
                purpose=_PURPOSE,
            )
        except KafkaError as error:
            if not error.retriable:
                raise
            self._warn(broker, f"{sentence(error).removesuffix('.')} (its replicas are compared when it answers)")
            return {}

    def _compare(self, answers: Answers) -> None:
        for found in self._comparison.compare(answers):
            self._differences += 1
            named = {"topic": found.key.topic, "partition": found.key.partition}
            if isinstance(found, ChecksumsDiffer):
                self._say(
                    f"partition {found.key} has unmatched checksum at offset {found.offset}; replica "
                    f"{found.first_broker}'s checksum "
                    f"{found.first_checksum}; replica {found.other_broker}'s checksum {found.other_checksum}",
                    "checksums_differ",
                    **named,
                    offset=found.offset,
                    checksums={
                        str(found.first_broker): found.first_checksum,
                        str(found.other_broker): found.other_checksum,
                    },
                )
                continue
            self._say(
                f"partition {found.key}: replica {found.first_broker}'s offset {found.first_offset} doesn't match "
                f"replica "
                f"{found.other_broker}'s offset {found.other_offset}",
                "offsets_differ",
                **named,
                offsets={str(found.first_broker): found.first_offset, str(found.other_broker): found.other_offset},
            )
            raise _cannot_go_on(found, self._comparison.offsets[found.key])

    async def _look_at_errors(self, answers: Answers) -> None:
        """Reports replicas that cannot be read, and skips deleted offsets. After errors it pauses before the next
        requests, because brokers return errors immediately."""
        gone = self._comparison.out_of_range(answers)
        for key in gone:
            await self._pass_over(key)
        failed = any(not found for found in answers.values())
        for broker, found in answers.items():
            errors = Counter(
                item.error.message
                for item in found.values()
                if item.error is not None and not isinstance(item.error, OffsetOutOfRangeError)
            )
            for name, count in errors.items():
                self._warn(
                    broker,
                    f"it answers {name} to a fetch of {count} partition{'s' if count > 1 else ''} (compared when it "
                    f"has them)",
                )
            failed = failed or any(item.error is not None for item in found.values())
        self._failures = self._failures + 1 if failed and not gone else 0
        if self._failures:
            await asyncio.sleep(self._cluster.retry_pause_seconds(self._failures))

    async def _pass_over(self, key: TopicPartition) -> None:
        offsets = self._comparison.offsets
        before = offsets[key]
        following = (await list_offsets(self._cluster, {key: EARLIEST}))[key].offset
        if following <= before:
            following = (await list_offsets(self._cluster, {key: LATEST}))[key].offset
        offsets[key] = following
        print(
            f"kafka-replica-verification: no replica of {key} has offset {before} any more: it goes on at {following}.",
            file=sys.stderr,
            flush=True,
        )

    def _report(self) -> None:
        lag, key, offset = self._comparison.max_lag
        count = len(self._comparison)
        named = {} if key is None else {"topic": key.topic, "partition": key.partition}
        self._say(
            f"max lag is {lag} for partition {'null' if key is None else key} at offset {offset} among {count} "
            f"partitions",
            "max_lag", maxLag=lag, **named, offset=offset, partitions=count,
        )  # fmt: skip
        self._reported.clear()

    def _say(self, line: str, name: str, **fields: object) -> None:
        if self._events is not None:
            self._events.say(name, **fields)
        else:
            print(f"{date_text(self._cluster.clock.now_ms(), _DATE_FORMAT)}: {line}", flush=True)

    def _warn(self, broker: int, what: str) -> None:
        """Prints a warning on stderr. The same warning is printed only once between two reports."""
        if (broker, what) not in self._reported:
            self._reported.add((broker, what))
            print(f"kafka-replica-verification: broker {broker}: {what}.", file=sys.stderr, flush=True)


def _cannot_go_on(found: OffsetsDiffer, offset: int) -> JesenskaError:
    return JesenskaError(
        f"The replicas of {found.key} on brokers {found.first_broker} and {found.other_broker} have other batches "
        f"behind offset {offset}: "
        "one of them was compacted otherwise or has lost records; kafka-dump-log shows what is in their files."
    )


if __name__ == "__main__":
    sys.exit(main())
