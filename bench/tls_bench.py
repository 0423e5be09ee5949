"""TLS: jesenska against Apache Kafka 4.3.1, by that release's own producer and consumer.

    python -m bench.tls_bench                       every row, 3 rounds; 10 minutes
    python -m bench.tls_bench --rounds 1 --scale 0.2

Both brokers run at the same time, and the rows alternate between them. A row writes or reads records of 100 or 1000
bytes in six partitions over TLS 1.3 with the same certificate: MB/s as the tool says, and the broker's CPU seconds for
each GB. A round without figures comes first, so that neither side's Java is cold."""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from tests.peers.apache_kafka import ApacheKafka, free_port, tool_command

from bench.brokers import KAFKA
from bench.figures import cpu
from bench.needs import kafka, require
from bench.raw_clients import create_topic
from jesenska.security.authority import new_authority
from jesenska.testing import BrokerProcess

_PARTITIONS: Final = 6
_RECORDS: Final = {100: 3_000_000, 1000: 1_000_000}
_PRODUCED = re.compile(r"([\d.]+) MB/sec\)")


class Side(NamedTuple):
    """One broker, and its client's settings file."""

    name: str
    plain: str
    secured: str
    pid: int
    client: str


class Outcome(NamedTuple):
    """MB a second, and CPU seconds of the broker for each GB."""

    mb_per_second: float
    cpu_per_gb: float


def _settings(directory: Path) -> tuple[dict[str, str], str]:
    authority = new_authority("bench", datetime.now(UTC))
    (directory / "ca.pem").write_text(authority.pem)
    (directory / "broker.pem").write_text(authority.issue("broker", ["localhost", "127.0.0.1"], datetime.now(UTC)))
    client = directory / "client.properties"
    client.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={directory / 'ca.pem'}\n"
        "enable.metrics.push=false\n"
    )
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "offsets.topic.num.partitions": "1",
    }, str(client)


@contextmanager
def sides(directory: Path) -> Iterator[tuple[Side, Side]]:
    """Both brokers, with the same certificate; `ca.pem` in the directory is what clients trust."""
    settings, client = _settings(directory)
    plain, secured, controller = free_port(), free_port(), free_port()
    ours = BrokerProcess(
        directory / "data",
        settings=settings | {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SSL://127.0.0.1:{free_port()}"},
    )
    theirs = ApacheKafka(KAFKA, directory / "kafka", settings=settings | _listeners(plain, secured, controller))
    theirs.ports, theirs.quorum = [plain], [controller]
    with ours:
        theirs.start()
        try:
            port = ours.settings["listeners"].rpartition(":")[2]
            yield (
                Side("jesenska", ours.bootstrap, f"127.0.0.1:{port}", ours.pid, client),
                Side(f"Apache Kafka {KAFKA}", theirs.bootstrap, f"127.0.0.1:{secured}", theirs.pids[0], client),
            )
        finally:
            theirs.stop()


def _listeners(plain: int, secured: int, controller: int) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{secured},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{secured}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
    }


def _tool(*words: str) -> str:
    done = subprocess.run(tool_command(KAFKA, *words, heap="1g"), capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{words[0]} failed: {done.stdout}\n{done.stderr}")
    return done.stdout


def _produce(side: Side, topic: str, size: int, records: int) -> Outcome:
    before = cpu(side.pid)
    said = _tool(
        *("kafka-producer-perf-test", "--topic", topic, "--num-records", str(records), "--record-size", str(size)),
        *("--throughput", "-1", "--producer.config", side.client),
        *("--producer-props", f"bootstrap.servers={side.secured}", "batch.size=65536", "linger.ms=10"),
    )
    found = _PRODUCED.findall(said)
    return _outcome(side, before.total, float(found[-1]), size * records)


def _consume(side: Side, topic: str, size: int, records: int) -> Outcome:
    before = cpu(side.pid)
    said = _tool(
        *("kafka-consumer-perf-test", "--bootstrap-server", side.secured, "--topic", topic),
        *("--num-records", str(records), "--command-config", side.client),
    )
    line = [line for line in said.splitlines() if re.match(r"\d{4}-", line)][-1]
    return _outcome(side, before.total, float(line.split(", ")[8]), size * records)


def _outcome(side: Side, before: float, mb_per_second: float, size_bytes: int) -> Outcome:
    return Outcome(mb_per_second, (cpu(side.pid).total - before) / (size_bytes / 1e9))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    require("tls_bench", kafka(KAFKA))
    found: dict[tuple[str, str], list[Outcome]] = {}
    with tempfile.TemporaryDirectory() as directory, sides(Path(directory)) as both:
        for number in range(options.rounds + 1):
            for size, whole in _RECORDS.items():
                records = int(whole * options.scale * (0.2 if number == 0 else 1))
                topic = f"tls-{number}-{size}"
                for side in both:
                    create_topic(side.plain, topic, _PARTITIONS)
                for row, work in ((f"produce {size} B", _produce), (f"consume {size} B", _consume)):
                    for side in both if number % 2 else both[::-1]:
                        outcome = work(side, topic, size, records)
                        if number:
                            found.setdefault((row, side.name), []).append(outcome)
                            print(number, row, side.name, *(f"{value:.2f}" for value in outcome), flush=True)
    _print(found, [side.name for side in both])


def _print(found: Mapping[tuple[str, str], list[Outcome]], names: list[str]) -> None:
    print(f"\n| row | {names[0]} MB/s | {names[1]} MB/s | ratio | {names[0]} CPU s/GB | {names[1]} CPU s/GB | ratio |")
    print("|---|---|---|---|---|---|---|")
    for row in dict.fromkeys(row for row, _ in found):
        ours, theirs = (found[row, name] for name in names)
        rates = [statistics.median(item.mb_per_second for item in side) for side in (ours, theirs)]
        costs = [statistics.median(item.cpu_per_gb for item in side) for side in (ours, theirs)]
        print(
            f"| {row} | {rates[0]:.0f} | {rates[1]:.0f} | {rates[0] / rates[1]:.2f} "
            f"| {costs[0]:.2f} | {costs[1]:.2f} | {costs[0] / costs[1]:.2f} |"
        )


if __name__ == "__main__":
    main()
