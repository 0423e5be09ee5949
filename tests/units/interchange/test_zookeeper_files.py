"""ZooKeeper's files read without a ZooKeeper. That real ones (3.4.10 and 3.8.4) are read as they answer is in
tests/conformance/test_interchange.py."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import JesenskaError
from jesenska.interchange.nodes import Node
from jesenska.interchange.zookeeper_files import read_data_directory
from tests.units.interchange import zookeeper_writer as writer

_BASE = {
    "/brokers": Node(None),
    "/brokers/ids": Node(None),
    "/brokers/topics": Node(b"x", 3),
    "/zookeeper": Node(b""),
    "/hbase": Node(b"other"),
}


def _write(directory: Path, **files: bytes) -> Path:
    inside = directory / "version-2"
    inside.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (inside / name.replace("_", ".")).write_bytes(content)
    return directory


def test_a_snapshot_and_the_log_behind_it(tmp_path: Path) -> None:
    entries = [
        writer.entry(5, writer.create("/brokers/topics/old", b"not again")),
        writer.entry(6, writer.open_session()),
        writer.entry(7, writer.create("/brokers/topics/t", b"1")),
        writer.entry(8, writer.set_data("/brokers/topics/t", None, 1)),
        writer.entry(
            9, writer.multi([writer.create("/brokers/topics/u", b"u"), writer.delete("/brokers/topics/gone")])
        ),
        writer.entry(10, writer.create("/brokers/ids/1", b"up", ephemeral=True)),
        writer.entry(11, writer.create("/controller", b"me", ephemeral=True), session=8),
        writer.entry(12, writer.close_session(), session=8),
    ]
    nodes = _BASE | {"/brokers/topics/gone": Node(b"")}
    found = read_data_directory(
        _write(tmp_path, snapshot_5=writer.snapshot(nodes), log_1=writer.log(entries)), None, ""
    )
    assert found.nodes == {
        "/brokers": Node(None),
        "/brokers/ids": Node(None),
        "/brokers/topics": Node(b"x", 3),
        "/brokers/topics/t": Node(None, 1),
        "/brokers/topics/u": Node(b"u"),
    }
    assert found.last_zxid == 12


def test_ephemerals_of_a_snapshot_are_left_away_but_not_containers(tmp_path: Path) -> None:
    nodes = _BASE | {"/brokers/ids/1": Node(b"up"), "/config": Node(b"", 1), "/admin": Node(b"")}
    owners = {"/brokers/ids/1": 7, "/config": -(1 << 63), "/admin": (0xFF << 56 | 5) - (1 << 64)}
    found = read_data_directory(_write(tmp_path, snapshot_5=writer.snapshot(nodes, owners)), None, "")
    assert found.nodes.keys() == {"/brokers", "/brokers/ids", "/brokers/topics", "/config", "/admin"}


def test_a_chroot_is_the_root(tmp_path: Path) -> None:
    nodes = {"/kafka": Node(None)} | {f"/kafka{path}": node for path, node in _BASE.items()}
    _write(tmp_path, snapshot_5=writer.snapshot(nodes | {"/brokers": Node(b"another's")}))
    assert read_data_directory(tmp_path, None, "/kafka").nodes.keys() == {"/brokers", "/brokers/ids", "/brokers/topics"}
    with pytest.raises(JesenskaError, match="has no node /other"):
        read_data_directory(tmp_path, None, "/other")


def test_a_snapshot_that_is_not_whole_gives_way_to_the_one_before(tmp_path: Path) -> None:
    whole = writer.snapshot(_BASE)
    log = writer.log([writer.entry(7, writer.create("/brokers/topics/t", b"1"))])
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        _write(tmp_path, snapshot_5=whole, snapshot_a=whole[:cut], log_6=log)
        assert "/brokers/topics/t" in read_data_directory(tmp_path, None, "").nodes
    (tmp_path / "version-2" / "snapshot.5").unlink()
    with pytest.raises(JesenskaError, match="is whole"):
        read_data_directory(tmp_path, None, "")


def test_logs_in_a_directory_of_their_own(tmp_path: Path) -> None:
    data, logs = tmp_path / "data", tmp_path / "logs"
    _write(data, snapshot_5=writer.snapshot(_BASE))
    _write(
        logs,
        log_6=writer.log([writer.entry(6, writer.create("/brokers/topics/t", b""))]),
        log_7=writer.log([], 0),
        log_8=bytes(100),
    )
    assert "/brokers/topics/t" in read_data_directory(data, logs, "").nodes


@pytest.mark.parametrize("cut", range(0, 280, 7))
def test_a_log_that_ends_anywhere_gives_what_was_whole(tmp_path: Path, cut: int) -> None:
    """The last transaction of a ZooKeeper that died may be written in part."""
    entries = [writer.entry(number, writer.create(f"/brokers/topics/{number}", b"data")) for number in (6, 7, 8)]
    whole = writer.log(entries, 0)
    begin, ends = 16, []
    for item in entries:
        begin += len(item)
        ends.append(begin)
    _write(tmp_path, snapshot_5=writer.snapshot(_BASE), log_6=whole[:cut] + bytes(100))
    if 0 < cut < 8:  # in its head, which ends in zeros anyway
        with pytest.raises(JesenskaError, match="is damaged"):
            read_data_directory(tmp_path, None, "")
        return
    nodes = read_data_directory(tmp_path, None, "").nodes
    assert sum(path.startswith("/brokers/topics/") for path in nodes) == sum(cut >= end for end in ends)


def test_damage_in_the_middle_is_refused(tmp_path: Path) -> None:
    content = bytearray(
        writer.log([writer.entry(number, writer.create(f"/brokers/topics/{number}", b"data")) for number in (6, 7)])
    )
    content[60] ^= 1
    _write(tmp_path, snapshot_5=writer.snapshot(_BASE), log_6=bytes(content))
    with pytest.raises(
        JesenskaError, match=r"log\.6 is damaged \(the checksum of the transaction at 16 does not fit\)"
    ):
        read_data_directory(tmp_path, None, "")


def test_numbers_that_no_transaction_has(tmp_path: Path) -> None:
    """A tree that continues from such numbers would run out of them."""
    whole = writer.snapshot(_BASE)
    _write(
        tmp_path,
        snapshot_5=whole,
        snapshot_ffffffffffffffff=whole,
        log_6=writer.log([writer.entry((1 << 63) - 1, writer.open_session())]),
    )
    with pytest.raises(JesenskaError, match="a transaction has the number 9223372036854775807"):
        read_data_directory(tmp_path, None, "")
    (tmp_path / "version-2" / "log.6").unlink()
    assert read_data_directory(tmp_path, None, "").last_zxid == 5


def test_what_is_no_directory_of_zookeeper_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(JesenskaError, match="There is no directory"):
        read_data_directory(tmp_path / "missing", None, "")
    with pytest.raises(JesenskaError, match="has no snapshot and no log"):
        read_data_directory(tmp_path, None, "")
    _write(tmp_path, snapshot_5_gz=b"\x1f\x8b")
    with pytest.raises(JesenskaError, match=r"snapshot\.5\.gz is compressed"):
        read_data_directory(tmp_path, None, "")


def test_a_log_without_the_snapshot_before_it_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, log_9=writer.log([]))
    with pytest.raises(JesenskaError, match="does not begin with the first transaction"):
        read_data_directory(tmp_path, None, "")


@given(st.integers(0, 600), st.binary(min_size=1, max_size=12))
def test_bytes_of_chance_are_refused_or_read_in_bounds(position: int, noise: bytes) -> None:
    """No length in a file makes the reader allocate too much memory, loop, or fail with another error."""
    snapshot, log = (
        bytearray(writer.snapshot(_BASE)),
        bytearray(writer.log([writer.entry(6, writer.create("/brokers/topics/t", b""))])),
    )
    for content in (snapshot, log):
        content[position % len(content) : position % len(content) + len(noise)] = noise
    with tempfile.TemporaryDirectory() as name:
        _write(Path(name), snapshot_5=bytes(snapshot), log_6=bytes(log))
        try:
            read_data_directory(Path(name), None, "")
        except JesenskaError:
            pass


_NAMES = st.sampled_from(["/brokers/a", "/brokers/b", "/brokers/a/c", "/config"])
_CHANGES = st.lists(
    st.tuples(st.sampled_from(["create", "set", "delete"]), _NAMES, st.one_of(st.none(), st.binary(max_size=5))),
    max_size=30,
)


@given(_CHANGES, st.integers(0, 30), st.integers(0, 30))
def test_a_snapshot_taken_at_any_moment_with_the_log_is_the_tree(
    changes: list[tuple[str, str, bytes | None]], begun: int, ended: int
) -> None:
    """A snapshot is written during changes: some changes after its number are in it."""
    model: dict[str, Node] = {"/brokers": Node(None)}
    history = [dict(model)]
    entries: list[bytes] = []
    for what, path, data in changes:
        there, parent = path in model, path.rpartition("/")[0] or "/"
        if what == "create" and not there and (parent == "/" or parent in model):
            model[path] = Node(data)
            body = writer.create(path, data)
        elif what == "set" and there:
            model[path] = Node(data, model[path].version + 1)
            body = writer.set_data(path, data, model[path].version)
        elif what == "delete" and there and not any(other.startswith(path + "/") for other in model):
            del model[path]
            body = writer.delete(path)
        else:
            continue
        entries.append(writer.entry(len(entries) + 1, body))
        history.append(dict(model))
    first = min(begun, ended, len(history) - 1)
    last = min(max(begun, ended), len(history) - 1)
    # Each node as it was at some moment between the two.
    fuzzy = {
        path: node
        for number, moment in enumerate(history[first : last + 1])
        for path, node in moment.items()
        if hash(path) % 2 or number == 0
    }
    fuzzy = {path: node for path, node in fuzzy.items() if path in history[first] or path in history[last]}
    with tempfile.TemporaryDirectory() as name:
        _write(Path(name), **{f"snapshot_{first:x}": writer.snapshot(fuzzy)}, log_1=writer.log(entries))
        assert dict(read_data_directory(Path(name), None, "").nodes) == model
