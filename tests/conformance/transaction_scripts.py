"""Requests about one transactional id, one after the other, and what a broker answers to each. A cell of
`transaction_table` is one request in one state; here it counts what came before: batches that were refused, sequences,
and epochs that a partition knows.

Each answer says the error, and what DescribeTransactions says afterwards, all relative to the producer that the script
began with."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from jesenska.base.errors import ErrorCode
from tests.conformance.transaction_table import NOBODY, TOPIC, Asked, Broker, Who, relative


class Step(NamedTuple):
    """One request. `epoch` is how far the producer's epoch is from the one that it has by then."""

    request: str
    version: int = 0
    epoch: int = 0
    sequence: int = 0
    partition: int = 0
    commits: bool = True


def _produce(version: int, sequence: int, epoch: int = 0, partition: int = 0) -> Step:
    return Step("Produce", version, epoch, sequence, partition)


def _plain(sequence: int, epoch: int = 0) -> Step:
    """A batch outside of any transaction."""
    return Step("plain", epoch=epoch, sequence=sequence)


_ADD, _COMMIT, _COMMIT_5 = Step("AddPartitionsToTxn", 3), Step("EndTxn", 3), Step("EndTxn", 5)
_ABORT, _ABORT_5 = _COMMIT._replace(commits=False), _COMMIT_5._replace(commits=False)

SCRIPTS: dict[str, tuple[Step, ...]] = {
    "a refused batch is waited for": (_produce(9, 0), _ADD, _produce(9, 3), _produce(9, 0), _produce(9, 1), _COMMIT),
    "of several the lowest": (
        _produce(11, 5),
        _produce(11, 2),
        _produce(11, 7),
        _ADD,
        _produce(11, 5),
        _produce(11, 3),
        _produce(11, 2),
    ),
    "a newer epoch": (_produce(9, 0), _produce(9, 4, epoch=1), _ADD, _produce(9, 0), _produce(9, 4)),
    "an older epoch": (_produce(9, 4, epoch=1), _produce(9, 0), _ADD, _produce(9, 4), _produce(9, 5)),
    "a marker": (_produce(9, 0), _ADD, _ABORT, _ADD, _produce(9, 3), _produce(9, 0)),
    "one that was written before": (
        _ADD,
        _produce(9, 0),
        _produce(9, 1),
        _COMMIT,
        _produce(9, 1),
        _ADD,
        _produce(9, 2),
        _produce(9, 1),
    ),
    "one outside of a transaction": (_produce(9, 0), _plain(3), _plain(0), _plain(1)),
    "a new client begins with 0": (_produce(12, 3), _produce(12, 0), _COMMIT_5),
    "a new client before an old one": (_produce(12, 3), _produce(9, 2), _produce(9, 3), _ABORT_5, _produce(12, 0)),
    "an old client before a new one": (_produce(9, 0), _produce(12, 3), _produce(12, 0), _COMMIT_5),
    "an epoch that the partition refuses": (
        _plain(0, epoch=5),
        _produce(12, 0),
        _COMMIT_5,
        _produce(9, 0),
        _ADD,
        _produce(11, 0),
    ),
    "and refuses since the last transaction": (
        _produce(12, 0),
        _ABORT_5,
        _plain(0, epoch=3),
        _produce(12, 0),
        _COMMIT_5,
    ),
    "an epoch that the group's partition refuses": (Step("mark", epoch=5), Step("TxnOffsetCommit", 5), _COMMIT_5),
}

#: What the steps of a drawn script are drawn from. Not an EndTxn 5 of an older epoch, where ours is stricter
#: (`test_transaction_table`), nor a batch outside of a transaction with a newer epoch: Apache Kafka never ends a
#: transaction whose marker the partition then refuses.
_DRAWN: tuple[Callable[[Random, int], Step], ...] = (
    lambda chance, epoch: _produce(
        chance.choice((9, 11, 12, 12, 12)), chance.choice((0, 0, 0, 1, 2, 3)), epoch, chance.choice((0, 0, 1))
    ),
    lambda chance, epoch: Step("AddPartitionsToTxn", chance.choice((3, 3, 4, 5)), epoch),
    lambda chance, epoch: Step("EndTxn", chance.choice((3, 5, 5, 5)), max(epoch, 0), commits=chance.random() < 0.6),
    lambda chance, epoch: Step("EndTxn", 5, max(epoch, 0), commits=chance.random() < 0.6),
    lambda chance, epoch: Step("TxnOffsetCommit", chance.choice((3, 5, 5)), epoch),
    lambda chance, epoch: Step("AddOffsetsToTxn", 3, epoch),
    lambda chance, epoch: Step("InitProducerId", chance.choice((1, 4, 5)), epoch),
    lambda chance, epoch: _plain(chance.choice((0, 0, 1, 2)), min(epoch, 0)),
)
_LONGEST = 9


def drawn(seed: int) -> tuple[Step, ...]:
    chance = Random(seed)
    return tuple(
        chance.choice(_DRAWN)(chance, chance.choice((0, 0, 0, 0, 0, -1, 1))) for _ in range(chance.randint(3, _LONGEST))
    )


def answers(broker: Broker, steps: tuple[Step, ...]) -> list[str]:
    """The answer to each step, of a transactional id of its own."""
    asked = broker.in_state("Empty")
    now = asked.producer
    found = []
    for step in steps:
        code, told = _ask(broker, asked, now._replace(epoch=now.epoch + step.epoch), step)
        if told is not None and code == ErrorCode.NONE:
            now = told
        error, state, known = broker.settled(asked.name)
        after = ErrorCode(error).name if error else f"{state} {relative(asked.producer, known)}"
        found.append(f"{ErrorCode(code).name}{'' if told is None else f' {relative(asked.producer, told)}'} -> {after}")
    return found


def _ask(broker: Broker, asked: Asked, who: Who, step: Step) -> tuple[int, Who | None]:
    match step.request:
        case "Produce":
            return broker.produce(asked, who, step.version, TOPIC, step.partition, step.sequence), None
        case "plain":
            return broker.produce_outside(who, step.sequence), None
        case "mark":
            return broker.mark_offsets(who), None
        case "AddPartitionsToTxn":
            return broker.add(asked, who, step.version), None
        case "AddOffsetsToTxn":
            return broker.add_offsets(asked, who, step.version), None
        case "TxnOffsetCommit":
            return broker.offsets(asked, who, step.version), None
        case "InitProducerId":
            made = broker.ask_init(asked.name, who if step.version >= 3 else NOBODY, step.version)
            return made.error_code, Who(made.producer_id, made.producer_epoch)
        case _:
            ended = broker.end(asked, who, step.version, commits=step.commits)
            return ended.error_code, Who(ended.producer_id, ended.producer_epoch) if step.version >= 5 else None
