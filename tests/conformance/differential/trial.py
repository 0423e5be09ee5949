"""Cases of one API: a request to both sides, the answers compared, worlds renewed where requests have changed them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from jesenska.wire.codec import MalformedMessageError, encode
from jesenska.wire.language import Message
from jesenska.wire.registry import APIS
from tests.conformance.differential.answers import differences, plain
from tests.conformance.differential.known import KNOWN, Known, with_doubles
from tests.conformance.differential.sides import Answer, Side, Silence

#: APIs whose requests change nothing that a later one sees.
READ_ONLY: Final = frozenset(
    (1, 2, 9, 10, 15, 16, 17, 18, 22, 23, 29, 30, 31, 32, 35, 43, 45, 46, 48, 50, 60, 61, 66, 74, 75)
)
#: APIs whose requests change what the controller keeps.
_CONTROLLERS: Final = frozenset((3, 19, 20, 33, 37, 44))
_CASES_IN_A_WORLD, _CASES_IN_A_WORLD_THAT_STAYS = 20, 1000
_PRODUCE, _FIRST_PRODUCE_OF_4, _JOIN_GROUP = 0, 3, 11


@dataclass(frozen=True)
class Found:
    """A difference: where it is and what each side has there, and the first request that shows it."""

    key: int
    version: int
    path: str
    ours: str
    theirs: str
    request: str

    @property
    def sign(self) -> tuple[int, str, str, str]:
        """What makes two of them the same."""
        return self.key, self.path, self.ours.partition(" elements:")[0], self.theirs.partition(" elements:")[0]

    def __str__(self) -> str:
        return (
            f"{APIS[self.key].name} {self.version} {self.path}: ours {self.ours}, theirs {self.theirs}\n    "
            f"{self.request}"
        )


@dataclass
class Report:
    """What became of an API's cases."""

    key: int
    cases: int = 0
    differing: int = 0
    #: Cases that Kafka did not answer.
    silent: int = 0
    found: dict[tuple[int, str, str, str], Found] = field(default_factory=dict)
    counts: Counter[tuple[int, str, str, str]] = field(default_factory=Counter)
    known: Counter[Known] = field(default_factory=Counter)


class Trial:
    """`judges` are Apache Kafka's sides, the newest first: each version is judged by the first that serves it."""

    def __init__(self, ours: Side, judges: list[Side], seed: int = 1, label: str = "w") -> None:
        self._ours, self._judges, self._seed, self._label = ours, judges, seed, label
        self._worlds: Counter[int] = Counter()
        self._last: Answer = Silence.NOTHING

    def run(self, key: int, cases: int) -> Report:
        """So many cases at least, over all versions that a judge serves."""
        report = Report(key)
        for judge, versions in self._judged(key):
            share = -(
                -cases * len(versions) // len([version for _, several in self._judged(key) for version in several])
            )
            self._run(report, judge, [versions[number % len(versions)] for number in range(max(share, len(versions)))])
        return report

    def _judged(self, key: int) -> Iterator[tuple[Side, list[int]]]:
        left = set(self._ours.announced[key])
        for judge in self._judges:
            served = {
                version
                for version in left & set(judge.announced.get(key, ()))
                if not _is_announced_only(judge, key, version)
            }
            left -= served
            if served:
                yield judge, sorted(served)

    def _run(self, report: Report, judge: Side, versions: list[int]) -> None:
        key = report.key
        used = limit = 0
        for number, version in enumerate(versions):
            if used >= limit:
                self._renew(judge, key)
                used, limit = 0, _CASES_IN_A_WORLD_THAT_STAYS if key in READ_ONLY else _CASES_IN_A_WORLD
            used += 1
            seed = f"{self._seed}-{key}-{version}-{number}"
            pair = self._pair(judge, key, version, seed)
            if pair is None:
                continue
            differing = self._ask(judge, *pair, version)
            if differing and key in READ_ONLY:
                judge.settle()
                differing = self._ask(judge, *pair, version)
            report.cases += 1
            if differing is None:
                report.silent += 1
                used = limit  # the request may be at work still: nothing is as it was
                continue
            self._count(report, pair[0], version, differing)
            if key not in READ_ONLY and any(_has_consequences(path) for path, _, _ in differing):
                used = limit
            if _leaves_what_no_answer_tells(pair[0]):
                used = limit
            if key in _CONTROLLERS:
                judge.settle()

    def _renew(self, judge: Side, key: int) -> None:
        self._worlds[key] += 1
        prefix = f"{self._label}{self._seed}-{key}-{self._worlds[key]}-"
        self._ours.renew(prefix)
        judge.renew(prefix)

    def _pair(self, judge: Side, key: int, version: int, seed: str) -> tuple[Message, Message] | None:
        """The request for each side; None where what was drawn cannot be written."""
        pair = []
        for side in (self._ours, judge):
            assert side.requests is not None
            pair.append(side.requests.request(key, version, random.Random(seed)))
        try:
            encode(pair[0], version)
        except (MalformedMessageError, ValueError):
            return None
        return pair[0], pair[1]

    def _ask(self, judge: Side, mine: Message, its: Message, version: int) -> list[tuple[str, str, str]] | None:
        """Where the answers differ; None where Kafka does not answer: who joins waits for others, and some mistakes it
        never answers."""
        judge.send(its, version)
        self._ours.send(mine, version)
        theirs: Answer = judge.receive(its, version)
        ours: Answer = self._ours.receive(mine, version)
        self._last = ours
        if theirs is Silence.WAITS:
            return None
        return list(differences(plain(ours, self._ours.world, mine), plain(theirs, judge.world, its)))

    @staticmethod
    def _count(report: Report, request: Message, version: int, differing: list[tuple[str, str, str]]) -> None:
        unknown = []
        for path, ours, theirs in differing:
            known = next((item for item in KNOWN if item.covers(request, version, path, ours, theirs)), None)
            if known is not None:
                report.known[known] += 1
            else:
                unknown.append(Found(report.key, version, path, ours, theirs, repr(request)))
        report.differing += bool(unknown)
        for found in unknown:
            report.found.setdefault(found.sign, found)
            report.counts[found.sign] += 1


def _leaves_what_no_answer_tells(request: Message) -> bool:
    """True for a write without acks or of a partition that stands twice (Kafka writes the good batch where it answers
    the bad one), and for a join whose silent member stays for another while, or that names a protocol twice: the sides
    may differ afterwards."""
    if request.api_key in (_PRODUCE, _JOIN_GROUP) and with_doubles(request):
        return True
    return getattr(request, "acks", 1) == 0 or getattr(request, "rebalance_timeout_ms", 1) <= 0


def _has_consequences(path: str) -> bool:
    """True where one side may have done what the other refused."""
    return path == "" or path.endswith(("error_code", "protocol_name", "base_offset", "[]"))


def _is_announced_only(judge: Side, key: int, version: int) -> bool:
    """Apache Kafka 4 announces Produce 0 to 2 for old librdkafka's sake, and refuses them."""
    return (
        judge.release is not None
        and not judge.release.startswith("3")
        and key == _PRODUCE
        and version < _FIRST_PRODUCE_OF_4
    )
