"""`jesenska verify`: it finds bytes that the disk of a follower has changed and that no client reads, and fetches them
again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jesenska.cli.jesenska import main
from jesenska.records.header import HEADER_SIZE
from tests.cluster.cluster import BrokerCluster, ours_only

pytestmark = [ours_only, pytest.mark.crash, pytest.mark.timeout(300)]


def _flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def test_damage_that_nobody_reads_is_found_and_fetched_anew(
    frail: BrokerCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leader, follower = 1, 2
    frail.create("old", placed=[[leader, follower]], configs={"segment.bytes": "2000"})
    for number in range(4):
        frail.write("old", [bytes([number]) * 900, bytes([number]) * 900])
    frail.until_whole()
    frail.until_logs_equal("old")
    broker = frail.brokers[follower]
    place = broker.data / "old-0"
    damaged = place / "00000000000000000002.log"
    assert len(list(place.glob("*.log"))) == 4
    assert main(["verify", str(broker.data)]) == 0
    assert "Damaged stretches: none." in capsys.readouterr().out

    broker.stop()
    _flip(damaged, HEADER_SIZE + 20)
    broker.start()
    frail.until_whole()  # no client has read it
    before = damaged.read_bytes()
    assert main(["verify", str(broker.data), "--bytes-per-second", "1000000"]) == 4
    said = capsys.readouterr()
    assert (
        f"{damaged} is damaged from position 0 to {len(before)} (the CRC does not fit): offsets 2 to 3 of old-0\n"
        in said.out
    )
    assert f"stop this broker, move {place} away, and start it" in said.err
    assert main(["verify", str(broker.data), "--output", "json"]) == 4
    (item,) = json.loads(capsys.readouterr().out)["damaged"]
    assert (item["file"], item["offset"], item["nextOffset"]) == (str(damaged), 2, 4)
    assert damaged.read_bytes() == before

    broker.stop()
    place.rename(tmp_path / "old-0")
    broker.start()
    frail.until(lambda view: view.of("old").isr == (leader, follower), brokers=[leader])
    frail.until_whole()
    frail.until_logs_equal("old")
    assert main(["verify", str(broker.data)]) == 0
