"""Histories as files: everything that was written can be read, however the writer ended. Other files are refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.testing.faults.disks import limited_file_size
from jesenska.testing.faults.history import (
    LINE_MAX_BYTES,
    HistoryError,
    HistoryWriter,
    Polled,
    SendBegan,
    from_line,
    read_history,
    to_line,
    value_text,
)
from tests.processes.testing.made_history import CorrectHistory

_KEY = TopicPartition("t", 0)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    operations = [operation for seed in range(5) for operation in CorrectHistory(Random(seed)).operations]
    assert len({type(operation) for operation in operations}) == 12
    for operation in operations:
        assert from_line(to_line(operation)) == operation
    operations.sort(key=lambda operation: operation.time_ns)
    with HistoryWriter(tmp_path / "h.jsonl") as history:
        for operation in operations:
            history.write(operation)
    assert read_history([tmp_path / "h.jsonl"]) == operations


def test_the_format_is_the_one_in_its_description() -> None:
    import jesenska.testing.faults.history as described

    assert described.__doc__ is not None
    lines = [
        line.strip()
        for line in described.__doc__.replace(',\n     "back"', ',"back"').splitlines()
        if line.startswith("    {")
    ]
    assert len(lines) == 16
    for line in lines:
        assert to_line(from_line(line.encode())) == line.encode() + b"\n"


def test_a_writer_that_is_killed_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    script = (
        "import sys\nfrom jesenska.testing.faults.history import HistoryWriter\n"
        "client = HistoryWriter(sys.argv[1]).client('p')\n"
        "for number in range(1000):\n    client.sending('t', 0, b'v')\nprint('done', flush=True)\n"
        "while True:\n    client.sending('t', 0, b'v' * 200)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        os.kill(process.pid, signal.SIGKILL)
    numbers = [operation.number for operation in read_history([path]) if isinstance(operation, SendBegan)]
    assert len(numbers) >= 1000
    assert numbers == list(range(len(numbers)))


def test_a_line_that_is_cut_off_is_left_out_and_another_writer_goes_on_behind_the_whole_ones(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    with HistoryWriter(path) as history:
        history.client("p").sending("t", 0, b"one")
        history.client("p").sending("t", 0, b"two")
    whole = path.read_bytes()
    for cut in range(whole.index(b"\n") + 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert [operation.value for operation in read_history([path]) if isinstance(operation, SendBegan)] == ["one"]
    with HistoryWriter(path) as history:
        history.client("p").sending("t", 0, b"three")
    assert [operation.value for operation in read_history([path]) if isinstance(operation, SendBegan)] == [
        "one",
        "three",
    ]


def test_a_long_torn_line_is_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    for whole in (b"", to_line(SendBegan(1, "p", 0, "t", 0, "v"))):
        path.write_bytes(whole + b'{"what":' + b"x" * 200_000)
        HistoryWriter(path).close()
        assert path.read_bytes() == whole


def test_histories_of_several_writers_are_merged_by_their_times(tmp_path: Path) -> None:
    times = iter(range(1, 7))
    paths = [tmp_path / "one", tmp_path / "two"]
    with (
        HistoryWriter(paths[0], now_ns=lambda: next(times)) as one,
        HistoryWriter(paths[1], now_ns=lambda: next(times)) as two,
    ):
        clients = [one.client("p"), two.client("q")]
        for number in range(6):
            clients[number % 2].sending("t", 0, b"%d" % number)
    for order in (paths, paths[::-1]):
        assert [operation.value for operation in read_history(order) if isinstance(operation, SendBegan)] == [
            "0",
            "1",
            "2",
            "3",
            "4",
            "5",
        ]


def test_one_file_has_one_writer(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h.jsonl"), pytest.raises(HistoryError, match="written by another"):
        HistoryWriter(tmp_path / "h.jsonl")
    HistoryWriter(tmp_path / "h.jsonl").close()


def test_threads_share_a_writer(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h.jsonl") as history:

        def work(name: str) -> None:
            client = history.client(name)
            for _ in range(300):
                client.sending("t", 0, b"v" * 150)

        threads = [threading.Thread(target=work, args=(f"p{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = read_history([tmp_path / "h.jsonl"])
    assert len(found) == 1200
    for number in range(4):
        assert [item.number for item in found if isinstance(item, SendBegan) and item.client == f"p{number}"] == list(
            range(300)
        )


def test_a_poll_of_many_records_takes_several_lines(tmp_path: Path) -> None:
    records = [(offset, b"\x00" * 190 + b"%d" % offset) for offset in range(5000)]
    with HistoryWriter(tmp_path / "h.jsonl") as history:
        history.client("c").polled(_KEY, records)
    polls = [operation for operation in read_history([tmp_path / "h.jsonl"]) if isinstance(operation, Polled)]
    assert len(polls) > 1
    assert [record for poll in polls for record in poll.records] == [
        (offset, value_text(value)) for offset, value in records
    ]


def test_a_value_has_a_text_of_its_own() -> None:
    values = [None, b"", b"v", b"\xff", b"\xfe", "č".encode(), bytes(201), bytes(202), b"a" * 300, b"a" * 299 + b"b"]
    texts = [value_text(value) for value in values]
    assert texts[:3] == [None, "", "v"]
    assert len(set(texts)) == len(texts)
    assert all(text is None or len(text) < 300 for text in texts)


def test_an_operation_that_is_too_long_for_a_line_is_refused(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h.jsonl") as history:
        with pytest.raises(HistoryError, match="write it in several"):
            history.write(Polled(1, "c", "t", 0, tuple((offset, "v" * 100) for offset in range(20_000))))
        history.client("p").sending("t", 0, b"v")
    assert len(read_history([tmp_path / "h.jsonl"])) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
def test_a_line_that_the_disk_does_not_take_whole_leaves_nothing(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h.jsonl") as history:
        client = history.client("p")
        client.sending("t", 0, b"one")
        with (
            limited_file_size(os.getpid(), (tmp_path / "h.jsonl").stat().st_size + 20),
            pytest.raises(OSError, match="File too large"),
        ):
            client.sending("t", 0, b"two")
        client.sending("t", 0, b"three")
    assert [
        operation.value for operation in read_history([tmp_path / "h.jsonl"]) if isinstance(operation, SendBegan)
    ] == ["one", "three"]


_GOOD = {"what": "send", "time_ns": 1, "client": "p", "number": 0, "topic": "t", "partition": 0, "value": "v"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"nonsense", "it is not JSON"),
        (b"\xff\xff", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[1]", "it is not an object"),
        (json.dumps(_GOOD | {"what": "sneeze"}).encode(), "its \"what\" is 'sneeze'"),
        (json.dumps(_GOOD | {"what": ["send"]}).encode(), 'its "what" is'),
        (json.dumps({name: value for name, value in _GOOD.items() if name != "topic"}).encode(), "'topic' is missing"),
        (json.dumps(_GOOD | {"number": "0"}).encode(), "'number' is not a whole number"),
        (json.dumps(_GOOD | {"number": True}).encode(), "'number' is not a whole number"),
        (json.dumps(_GOOD | {"value": 7}).encode(), "'value' is not a text or null"),
        (
            json.dumps(_GOOD | {"what": "polled", "records": [[1]]}).encode(),
            r"'records' is not a list of \[offset, value\]",
        ),
        (
            json.dumps(_GOOD | {"what": "polled", "records": {}}).encode(),
            r"'records' is not a list of \[offset, value\]",
        ),
        (
            json.dumps(_GOOD | {"what": "full read", "partitions": [[1, 1]]}).encode(),
            r"'partitions' is not a list of \[topic, partition\]",
        ),
        (b'{"what":"' + b"x" * LINE_MAX_BYTES + b'"}', f"more than {LINE_MAX_BYTES} bytes"),
    ],
)
def test_what_is_no_history_is_refused_with_file_and_line(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "h.jsonl"
    path.write_bytes(json.dumps(_GOOD).encode() + b"\n" + line + b"\n" + json.dumps(_GOOD).encode() + b"\n")
    with pytest.raises(HistoryError, match=f"{path}, line 2: .*{reason}"):
        read_history([path])


def test_fields_that_nobody_knows_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(json.dumps(_GOOD | {"weather": "fine"}) + "\n")
    assert read_history([path]) == [SendBegan(1, "p", 0, "t", 0, "v")]


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="cannot be read"):
        read_history([tmp_path / "none"])
