"""Old clients, and groups, on jesenska and on Apache Kafka 3.9.1 (the last release that serves clients of before
0.11), in turn on the same machine.

    python -m bench.old_formats_bench                               every row, 3 rounds; about half an hour
    python -m bench.old_formats_bench --list
    python -m bench.old_formats_bench --rows 'Fetch 0' --rounds 1 --scale 0.1
    python -m bench.old_formats_bench --sides jesenska --rows 'lz4' --profile perf

Topics of four partitions are filled with the same batches on both (16 KB, random letters, plain or lz4). Then they are
read through a group (3.9.1's own perf test), by 0.10.2.2's consumer (Fetch 3, format v1), and by bare sockets that ask
with Fetch 0 (v0) and 2 (v1), a connection a partition: the broker converts down. At last bare sockets write message
sets with Produce 1 (v0) and 2 (v1), four connections with one request in flight on each: the broker converts up. Each
row runs with a tenth of its records first, for a broker that is compiled while it runs.

Needs Java and Maven.
"""

from __future__ import annotations

import re
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.peers.apache_kafka import tool_command

from bench.brokers import Apache, Broker, Jesenska
from bench.figures import Figures
from bench.machine import settle
from bench.needs import kafka, require
from bench.old_clients import BATCHES_VERSION, drain, produce, produce_frames, records_in_a_batch
from bench.options import add_broker_options, needs_of_profile, only_lists, parser_of, show
from bench.rows import Row, Run
from bench.unfinished import Unfinished
from jesenska.records.header import Codec

RELEASE, OLD_RELEASE = "3.9.1", "0.10.2.2"
PARTITIONS = 4
_RECORDS = {100: 4_000_000, 1000: 600_000}
_WARM_UP = 0.1


def _requests(records: int, size: int) -> int:
    """A number of requests that gives each partition the same number of records."""
    return max(1, records // records_in_a_batch(size) // PARTITIONS) * PARTITIONS


def _filled(run: Run, size: int, codec: Codec) -> tuple[str, int]:
    """A topic in the newest format, and its number of records."""
    topic = f"of-{size}-{codec.name.lower()}"
    records = run.scaled(_RECORDS[size])
    requests = _requests(records, size)
    if not run.topics.get(topic):
        run.topic(topic, PARTITIONS)
        settle()
        produce(
            run.broker.bootstrap,
            topic,
            produce_frames(topic, PARTITIONS, size, codec, BATCHES_VERSION),
            PARTITIONS,
            requests,
        )
        run.topics[topic] = requests * records_in_a_batch(size)
    return topic, run.topics[topic]


def _group(run: Run, row: str, *, release: str, size: int, codec: Codec) -> None:
    topic, records = _filled(run, size, codec)
    # The old tool ends after a second without records; both ask for a little less than all, since their counts differ
    # at the end.
    options = (
        ("--broker-list", run.broker.bootstrap, "--new-consumer")
        if release == OLD_RELEASE
        else ("--bootstrap-server", run.broker.bootstrap)
    )
    for part in (_WARM_UP, 1.0):
        wanted = int(records * part * 0.99)
        group = f"{re.sub(r'[^a-z0-9]+', '-', row.lower())}-{part}"
        command = tool_command(
            release,
            "kafka-consumer-perf-test",
            *options,
            "--topic",
            topic,
            "--messages",
            str(wanted),
            "--group",
            group,
            "--hide-header",
        )
        if part < 1:
            run.command(command)
            continue
        with run.measured(row):
            said = run.command(command)
        fields = [word.strip() for word in said.strip().splitlines()[-1].split(",")]
        assert int(fields[4]) >= wanted, said
        run.figures.add(row, "records/s", float(fields[5]))


def _drain(run: Run, row: str, *, version: int, size: int, codec: Codec) -> None:
    topic, records = _filled(run, size, codec)
    each = records // PARTITIONS
    drain(run.broker.bootstrap, topic, PARTITIONS, version, size, codec, int(each * _WARM_UP))
    with run.measured(row):
        seconds = drain(run.broker.bootstrap, topic, PARTITIONS, version, size, codec, each)
    run.figures.add(row, "records/s", records / seconds)


def _produce(run: Run, row: str, *, version: int, size: int, codec: Codec) -> None:
    topic = run.topic(f"into-{version}-{size}-{codec.name.lower()}", PARTITIONS)
    requests = _requests(run.scaled(_RECORDS[size]), size)
    frames = produce_frames(topic, PARTITIONS, size, codec, version)
    settle()
    produce(run.broker.bootstrap, topic, frames, PARTITIONS, max(1, int(requests * _WARM_UP)))
    with run.measured(row):
        seconds = produce(run.broker.bootstrap, topic, frames, PARTITIONS, requests)
    run.figures.add(row, "records/s", requests * records_in_a_batch(size) / seconds)


def _rows() -> list[Row]:
    rows = []
    kinds = [(size, codec) for size in (100, 1000) for codec in (Codec.NONE, Codec.LZ4)]
    for size, codec in kinds:
        said = f"{_RECORDS[size] / 1e6:g} M x {size} B{', lz4' if codec else ''}"
        rows.append(
            Row(
                f"group, {said}: 3.9.1's consumer",
                "read",
                partial(_group, release=RELEASE, size=size, codec=codec),
                kafka(RELEASE),
            )
        )
        rows.append(
            Row(
                f"down to v1, {said}: 0.10.2.2's consumer",
                "read",
                partial(_group, release=OLD_RELEASE, size=size, codec=codec),
                kafka(OLD_RELEASE),
            )
        )
        rows.append(Row(f"down to v1, {said}: Fetch 2", "read", partial(_drain, version=2, size=size, codec=codec)))
        rows.append(Row(f"down to v0, {said}: Fetch 0", "read", partial(_drain, version=0, size=size, codec=codec)))
    for size, codec in kinds:
        said = f"{_RECORDS[size] / 1e6:g} M x {size} B{', lz4' if codec else ''}"
        rows.append(
            Row(f"up from v1, {said}: Produce 2", "write", partial(_produce, version=2, size=size, codec=codec))
        )
        rows.append(
            Row(f"up from v0, {said}: Produce 1", "write", partial(_produce, version=1, size=size, codec=codec))
        )
    return rows


def main() -> int:
    parser = parser_of(
        "Benchmarks old clients and groups on jesenska against Apache Kafka 3.9.1.", ("jesenska", "kafka"), rounds=3
    )
    add_broker_options(parser)
    options = parser.parse_args()
    words = [word.strip() for word in options.rows.split(";") if word.strip()]
    rows = [row for row in _rows() if not words or any(word in row.name for word in words)]
    if only_lists(options, [row.name for row in rows]):
        return 0
    sides_needs = kafka(RELEASE) if "kafka" in options.sides.split(",") else ()
    require(
        "old_formats_bench", [*sides_needs, *(need for row in rows for need in row.needs), *needs_of_profile(options)]
    )
    unfinished = Unfinished("old_formats_bench")
    names = {"jesenska": Jesenska.name, "kafka": Apache.name}
    sides = {names[side]: Figures() for side in options.sides.split(",")}
    settings = {"num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    for number in range(options.rounds):
        for name in sides if number % 2 == 0 else reversed(sides):
            with (
                unfinished.part(f"{name}, round {number + 1}"),
                tempfile.TemporaryDirectory(dir=options.dir) as directory,
            ):
                place = Path(directory)
                settle()
                broker: Broker = (
                    Jesenska(place, settings, options.profile, options.profiles)
                    if name == Jesenska.name
                    else Apache(place, settings, release=RELEASE)
                )
                broker.start()
                try:
                    run = Run(broker, sides[name], options.scale)
                    for row in rows:
                        print(f"round {number + 1}, {name}: {row.name}", file=sys.stderr, flush=True)
                        with unfinished.part(f"{row.name} ({name})"):
                            row.do(run, row.name)
                finally:
                    broker.stop()
    show(sides, options, f"Apache Kafka {RELEASE}", f", scale {options.scale:g}")
    return unfinished.exit_code()


if __name__ == "__main__":
    sys.exit(main())
