"""A broker after the proxy, under load, with every fault: its history is clean. A broker that loses acknowledged
records is found.

JESENSKA_SEED chooses the rounds beside the fixed ones."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from jesenska.testing import BrokerProcess
from jesenska.testing.faults import (
    Fault,
    FaultProxy,
    RecordedLoad,
    Round,
    Schedule,
    ServerFaults,
    Target,
    apply,
    check,
    draw,
    read_history,
)
from jesenska.testing.faults.history import CommitAcknowledged, Operation, Polled, SendAcknowledged
from tests.profiles import rounds

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

ROUNDS = rounds(quick=1, ci=6, everything=20)
SEED = int(os.environ.get("JESENSKA_SEED", "1948"))
#: One of each that matters most, whatever the seed.
_ALWAYS = (
    Round((Fault("cut", "broker", 0.0),), 50),
    Round((Fault("kill", "broker", 0.05),), 50),
    Round((Fault("pause", "broker", 0.2),), 50),
    Round((Fault("hold", "broker", 0.2, "to client"),), 50),
)


def assert_all_took_part(history: list[Operation]) -> None:
    """Fails unless all clients have done their part: an empty history would be clean, too."""
    sent = Counter(operation.client for operation in history if isinstance(operation, SendAcknowledged))
    assert {"producer-0", "producer-1"} <= set(sent)
    read: Counter[str] = Counter()
    for operation in history:
        if isinstance(operation, Polled):
            read[operation.client] += len(operation.records)
    assert {"reader-0", "last-reader"} <= set(read) and any(name.startswith("member-") for name in read)
    assert read["last-reader"] >= sent["producer-0"] + sent["producer-1"]
    assert any(
        isinstance(operation, CommitAcknowledged) and operation.client.startswith("member-") for operation in history
    )


def test_a_broker_keeps_its_promises_under_every_fault(tmp_path: Path) -> None:
    with FaultProxy() as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://{proxy.address}", "log.segment.bytes": "20000"}
        with BrokerProcess(tmp_path / "data", settings=settings, warm=True) as broker:
            proxy.target = broker.bootstrap
            load = RecordedLoad(proxy.address, "orders", tmp_path)
            drawn = draw(SEED, ["broker"], rounds=ROUNDS, seconds=(0.02, 0.4), steps=(1, 200))
            apply(Schedule(SEED, (*_ALWAYS, *drawn.rounds)), {"broker": Target(ServerFaults(broker), proxy)}, load)
            assert broker.log.count("jesenska is up") > 1
    history = read_history([load.path])
    assert_all_took_part(history)
    assert check(history) == []


def test_a_broker_that_loses_what_it_has_acknowledged_is_found_out(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", warm=True) as broker:
        load = RecordedLoad(broker.bootstrap, "orders", tmp_path, partitions=1, readers=0, members=0)
        load.start()
        load.wait_for(300)
        broker.kill()
        log = broker.data / "orders-0" / "00000000000000000000.log"
        os.truncate(log, log.stat().st_size // 2)
        broker.start()
        load.wait_for(10)
        load.stop()
    assert "lost" in {finding.kind for finding in check(read_history([load.path]))}


def test_a_full_disk_loses_nothing_and_the_load_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", warm=True) as broker:
        faults = ServerFaults(broker)
        load = RecordedLoad(broker.bootstrap, "orders", tmp_path, partitions=1, pause_seconds=0.001)
        full = threading.Event()

        def wait_until_full(seconds: float) -> None:
            if seconds == 1.0:
                broker.wait_until_said("orders-0 in", 60)
                full.set()

        apply(
            Schedule(1, (Round((Fault("full disk", "broker", 1.0, amount=20_000),), 100),)),
            {"broker": Target(faults)},
            load,
            wait=wait_until_full,
        )
        assert full.is_set()
    assert check(read_history([load.path])) == []
