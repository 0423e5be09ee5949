"""Chosen cells of the matrix of secured clients, at this broker and at Apache Kafka. `python -m
tests.conformance.secured` runs the whole matrix and prints it."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import need, need_modules, refuse
from tests.conformance.secured.cells import CLASSES, Cell, cells
from tests.conformance.secured.matrix import Outcomes, both, compare
from tests.peers.clients import MissingError
from tests.processes.broker.kdc import need_kdc

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

#: Each login, and each condition, once or more.
_CHOSEN = {
    ("TLS", "no group"),
    ("TLS", "wrong"),
    ("mTLS", "right"),
    ("mTLS", "expired"),
    ("PLAIN", "wrong"),
    ("PLAIN", "right"),
    ("SCRAM-SHA-256", "no ACL"),
    ("SCRAM-SHA-256", "token"),
    ("SCRAM-SHA-512", "revoked"),
    ("OAUTHBEARER", "right"),
    ("OAUTHBEARER", "expired"),
    ("OAUTHBEARER", "renewed"),
    ("GSSAPI", "right"),
    ("GSSAPI", "wrong"),
}
#: This client tries for as long as it may.
_SLOW = {("kafka-python", condition) for condition in ("wrong", "expired", "no ACL")}


def _is_chosen(cell: Cell) -> bool:
    return (cell.login, cell.condition) in _CHOSEN and (cell.client.name, cell.condition) not in _SLOW


@pytest.fixture(scope="module")
def found() -> tuple[Outcomes, Outcomes]:
    need("java", "mvn")
    need_modules("confluent_kafka", "kafka", "aiokafka", "cryptography")
    need_kdc()
    try:
        return both([cell for cell in cells() if _is_chosen(cell)])
    except MissingError as error:
        refuse([str(error)])
        raise


def test_clients_have_the_same_outcomes_as_at_apache_kafka(found: tuple[Outcomes, Outcomes]) -> None:
    different = compare(*found)
    assert not different, "\n".join(map(str, different))


def test_outcomes_are_what_the_conditions_say(found: tuple[Outcomes, Outcomes]) -> None:
    """So that two brokers that fail alike are not equal."""
    ours, _ = found
    wanted = {
        "right": ("ok", "ok"),
        "token": ("ok", "ok"),
        "no ACL": ("topic refused", "topic refused"),
        "revoked": ("ok", "ok", "topic refused", "topic refused"),
    }
    names = ("produce", "consume", "produce again", "consume again")
    for cell, outcome in ours.items():
        steps = tuple(outcome.steps[name] for name in names if name in outcome.steps)
        if cell.condition in wanted:
            assert steps == wanted[cell.condition], (cell.id, outcome)
        elif cell.condition in ("renewed", "removed"):
            assert steps[:2] == ("ok", "ok"), (cell.id, outcome)
            # Java 1.0.2 knows of no lifetimes, and tries nothing again.
            is_renewed = cell.condition == "renewed" and cell.client.name != "java 1.0.2"
            assert (steps[2] == "ok") is is_renewed, (cell.id, outcome)
        elif cell.condition == "no group":
            assert steps[0] == "ok", (cell.id, outcome)
            assert steps[1] != "ok", (cell.id, outcome)
        else:
            assert "ok" not in steps, (cell.id, outcome)
            assert set(steps) <= set(CLASSES), (cell.id, outcome)
