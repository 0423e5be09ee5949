"""The command: `python -m tests.conformance.differential --cases 2000 [--api N] [--seed S]`. Its exit code is 1 where
a difference is not known, and, of so many cases or more, where one that is known is not met."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from jesenska.testing import BrokerProcess
from jesenska.wire.registry import APIS
from tests.conformance.differential.known import KNOWN
from tests.conformance.differential.settings import JUDGES, OURS, THEIRS
from tests.conformance.differential.sides import Side
from tests.conformance.differential.trial import Report, Trial
from tests.peers.apache_kafka import ApacheKafka
from tests.sensible_requests import BETWEEN_BROKERS

#: Cases of an API in which every difference is met that is known.
_ENOUGH = 2000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.differential", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="cases for each API")
    parser.add_argument("--api", type=int, action="append", help="only this key; may be given several times")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=20, help="differences that are printed for each API")
    parser.add_argument("--ours", metavar="HOST:PORT", help="a running broker in place of one that is started")
    parser.add_argument(
        "--judge",
        metavar="RELEASE=HOST:PORT",
        action="append",
        help="a running Apache Kafka in place of those that are started, newest first",
    )
    parser.add_argument(
        "--label", default="w", help="what names begin with: a new one for brokers that were asked before"
    )
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bootstrap = options.ours or stack.enter_context(BrokerProcess(directory / "ours", settings=OURS)).bootstrap
        judges = []
        if options.judge:
            judges = [Side(address, release) for release, _, address in (item.partition("=") for item in options.judge)]
        else:
            for release in JUDGES:
                kafka = ApacheKafka(
                    release,
                    directory / release,
                    zookeeper=release.startswith("3"),
                    heap="512m",
                    settings=THEIRS,
                    log_level="OFF",
                )
                judges.append(Side(stack.enter_context(kafka).bootstrap, release))
        trial = Trial(Side(bootstrap, None), judges, options.seed, options.label)
        reports = []
        for key in options.api or sorted(Side(bootstrap, None).announced.keys() - set(BETWEEN_BROKERS)):
            begun = time.monotonic()
            report = trial.run(key, options.cases)
            reports.append(report)
            _print(report, time.monotonic() - begun, options.show)
    met = {item for report in reports for item in report.known}
    missed = [item for item in KNOWN if item not in met and set(item.keys) <= {report.key for report in reports}]
    for item in missed:
        print(f"known and not met: {sorted(item.keys)} {item.path}: {item.reason}")
    print(
        f"{sum(report.cases for report in reports):,} cases; {sum(len(report.found) for report in reports)} "
        f"differences that are not known"
    )
    return 1 if any(report.found for report in reports) or (missed and options.cases >= _ENOUGH) else 0


def _print(report: Report, seconds: float, shown: int) -> None:
    known = sum(report.known.values())
    compared = f"{report.cases:,} cases in {seconds:.0f} s, {report.differing:,} differ, {known:,} known differences"
    print(
        f"{report.key:3} {APIS[report.key].name}: {compared}, {report.silent:,} without an answer of Kafka", flush=True
    )
    for sign, count in report.counts.most_common(shown):
        print(f"  {count} times: {report.found[sign]}", flush=True)
    if len(report.counts) > shown:
        print(f"  and {len(report.counts) - shown} more")


if __name__ == "__main__":
    sys.exit(main())
