"""Outcomes that differ from those at Apache Kafka 3.9.1 on purpose, each with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tests.conformance.secured.cells import Cell

Steps = Mapping[str, str]
_AUTHENTICATION, _DISCONNECTED = "authentication failed", "disconnected"


class Known(NamedTuple):
    """A difference: the cells that have it, and whether two outcomes differ in nothing else."""

    reason: str
    is_of: Callable[[Cell], bool]
    is_it: Callable[[Steps, Steps], bool]


def _is_refused(ours: Steps, theirs: Steps) -> bool:
    return set(ours.values()) == {_AUTHENTICATION} and "ok" not in theirs.values()


def _is_closed(ours: Steps, theirs: Steps) -> bool:
    return set(ours.values()) == {_DISCONNECTED} and "ok" not in theirs.values()


def _is_closed_or_refused(ours: Steps, theirs: Steps) -> bool:
    return {*ours.values(), *theirs.values()} <= {_AUTHENTICATION, _DISCONNECTED}


def _reads_nothing(ours: Steps, theirs: Steps) -> bool:
    return {name: step for name, step in ours.items() if step != theirs[name]} in (
        {"consume again": _AUTHENTICATION},
        {"consume again": "ok"},
    )


KNOWN: Final = (
    Known(
        "Kafka takes the login with a delegation token that has expired, and closes the connection at the next "
        "request, until it removes the token within an hour. Here the login fails at once, so that the client knows "
        "why.",
        lambda cell: cell.condition == "expired" and cell.is_token,
        _is_refused,
    ),
    Known(
        "These clients take the answer to a refused token for a success, and send another request. Kafka answers it "
        "with ILLEGAL_SASL_STATE, which aiokafka takes for a cluster without brokers. Here the connection is closed: "
        "before a login no other request is decoded.",
        lambda cell: (
            cell.login == "OAUTHBEARER"
            and cell.condition in ("wrong", "expired")
            and cell.client.name in ("aiokafka", "kafkajs")
        ),
        _is_closed,
    ),
    Known(
        "kafka-python often finds that the broker has closed the connection before it has read the answer.",
        lambda cell: cell.client.name == "kafka-python" and cell.condition in ("wrong", "expired"),
        _is_closed_or_refused,
    ),
    Known(
        "In that case its consumer reads nothing, and raises no error.",
        lambda cell: cell.client.name == "kafka-python" and cell.condition == "removed",
        _reads_nothing,
    ),
)


def reason_for(cell: Cell, ours: Steps, theirs: Steps) -> str | None:
    """Why the outcomes of a cell differ; None if nothing is known."""
    return next((known.reason for known in KNOWN if known.is_of(cell) and known.is_it(ours, theirs)), None)
