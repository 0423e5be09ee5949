from __future__ import annotations

import itertools
import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jesenska.metadata.journal import METADATA_FILE, JournalError, JournalFullError, SqliteJournal
from jesenska.metadata.tree import CloseSession, Multi, OpenSession, Request, Tree
from jesenska.metadata.tree_operations import Acl, Create, Delete, MultiError, SetAcl, SetData, Transaction, TreeError
from tests.profiles import examples

NOW = 1_600_000_000_000

NAMES = st.sampled_from(["/a", "/b", "/a/c", "/b/ď", "/a/c/e"])
OPERATIONS = st.one_of(
    st.builds(Create, NAMES, st.none() | st.binary(max_size=20), st.booleans(), st.booleans()),
    st.builds(Delete, NAMES),
    st.builds(SetData, NAMES, st.none() | st.binary(max_size=20)),
    st.builds(SetAcl, NAMES, st.just((Acl(3, "digest", "who:é"), Acl(1, "world", "anyone")))),
)
REQUESTS = st.one_of(
    st.builds(
        lambda session, operations: Multi(session, tuple(operations)),
        st.integers(1, 3),
        st.lists(OPERATIONS, min_size=1, max_size=3),
    ),
    st.builds(OpenSession, st.integers(1, 3), st.integers(1, 60_000)),
    st.builds(CloseSession, st.integers(1, 3)),
)


def decided(tree: Tree, requests: list[Request]) -> list[Transaction]:
    """The transactions of those requests that were not refused."""
    transactions = []
    for offset, request in enumerate(requests):
        try:
            transaction = tree.decide(request, NOW + offset).transaction
        except (TreeError, MultiError):
            continue
        if transaction is not None:
            transactions.append(transaction)
    return transactions


@settings(max_examples=examples(0.6))
@given(requests=st.lists(REQUESTS, max_size=25), cuts=st.lists(st.integers(0, 25), max_size=3))
def test_the_journal_holds_the_live_tree_at_every_commit(
    tmp_path_factory: pytest.TempPathFactory, requests: list[Request], cuts: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    path = directory / METADATA_FILE
    journal, tree = SqliteJournal.open(path)
    live = tree.copy()
    transactions = decided(live, [OpenSession(1, 100), *requests])
    places = [0, *sorted({min(cut, len(transactions)) for cut in cuts}), len(transactions)]
    for begin, end in itertools.pairwise(places):
        journal.commit(transactions[begin:end])
        for transaction in transactions[begin:end]:
            tree.apply(transaction)
        # The files after a crash: as they are while the journal is open.
        crashed = directory / f"crash-{end}-{begin}"
        crashed.mkdir()
        for file in directory.glob(METADATA_FILE + "*"):
            shutil.copy(file, crashed / file.name)
        again, found = SqliteJournal.open(crashed / METADATA_FILE)
        again.close()
        assert found.state() == tree.state()
    journal.close()
    again, found = SqliteJournal.open(path)
    assert found.state() == live.state()
    again.close()
    assert [file.name for file in directory.iterdir() if file.is_file()] == [METADATA_FILE]


def some_transactions(count: int) -> list[Transaction]:
    tree = Tree()
    requests: list[Request] = [OpenSession(1, 100), Multi(1, (Create("/a"),))]
    requests += [Multi(1, (Create("/a/n-", b"x" * 2000, sequential=True),)) for _ in range(count)]
    return decided(tree, requests)


def test_a_write_ahead_log_cut_anywhere_leaves_a_prefix(tmp_path: Path) -> None:
    journal, tree = SqliteJournal.open(tmp_path / METADATA_FILE)
    transactions = some_transactions(12)
    states = [tree.state()]
    for transaction in transactions:
        journal.commit([transaction])
        tree.apply(transaction)
        states.append(tree.state())
    log = (tmp_path / (METADATA_FILE + "-wal")).read_bytes()
    base = (tmp_path / METADATA_FILE).read_bytes()
    journal.close()
    seen = set()
    for cut in [*range(0, len(log), 1999), len(log)]:
        crashed = tmp_path / f"cut-{cut}"
        crashed.mkdir()
        (crashed / METADATA_FILE).write_bytes(base)
        (crashed / (METADATA_FILE + "-wal")).write_bytes(log[:cut])
        again, found = SqliteJournal.open(crashed / METADATA_FILE)
        again.close()
        assert found.state() in states
        seen.add(found.last_zxid)
    assert len(seen) > 3
    assert max(seen) == len(transactions)


def test_a_full_disk_refuses_the_commit_and_a_later_one_succeeds(tmp_path: Path) -> None:
    path = tmp_path / METADATA_FILE
    journal, tree = SqliteJournal.open(path)
    transactions = some_transactions(100)
    connection = journal._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 5}").fetchall()
    with pytest.raises(JournalFullError, match="make room"):
        journal.commit(transactions)
    connection.execute("PRAGMA max_page_count = 1000000").fetchall()
    journal.commit(transactions)
    for transaction in transactions:
        tree.apply(transaction)
    journal.close()
    again, found = SqliteJournal.open(path)
    again.close()
    assert found.state() == tree.state()


def test_a_second_opening_is_refused(tmp_path: Path) -> None:
    journal, _ = SqliteJournal.open(tmp_path / METADATA_FILE)
    with pytest.raises(JournalError, match="in use by another process"):
        SqliteJournal.open(tmp_path / METADATA_FILE)
    journal.close()


def test_what_is_no_journal_is_refused_with_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"hello, this is no database at all, whatever its name may say" * 20)
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE t (a)")
    other.close()
    newer, _ = SqliteJournal.open(tmp_path / "newer")
    newer._connection.execute("PRAGMA user_version = 99")
    newer.close()
    lacking, _ = SqliteJournal.open(tmp_path / "lacking")
    lacking._connection.execute("DELETE FROM nodes WHERE path = '/zookeeper'")
    lacking.close()
    numberless, _ = SqliteJournal.open(tmp_path / "numberless")
    numberless._connection.execute("DELETE FROM meta")
    numberless.close()
    for name, match in (
        ("text", "is damaged"),
        ("other", "another program"),
        ("newer", "format 99"),
        ("lacking", "has no parent"),
        ("numberless", "last transaction is missing"),
        ("missing/dir", "cannot be opened"),
    ):
        with pytest.raises(JournalError, match=match) as caught:
            SqliteJournal.open(tmp_path / name)
        assert "\n" not in str(caught.value)
        assert str(caught.value).endswith(".")


def test_bytes_turned_over_in_the_middle_are_found(tmp_path: Path) -> None:
    path = tmp_path / METADATA_FILE
    journal, _ = SqliteJournal.open(path)
    journal.commit(some_transactions(200))
    journal.close()
    content = bytearray(path.read_bytes())
    for place in range(8192, len(content), 4096):
        content[place : place + 16] = b"\xff" * 16
    path.write_bytes(content)
    with pytest.raises(JournalError, match="is damaged"):
        SqliteJournal.open(path)


def test_an_empty_file_left_by_a_crash_becomes_a_journal(tmp_path: Path) -> None:
    path = tmp_path / METADATA_FILE
    path.touch()
    journal, tree = SqliteJournal.open(path)
    journal.close()
    assert tree.state() == Tree().state()


def test_the_secret_of_sessions_stays_and_an_older_file_gets_one(tmp_path: Path) -> None:
    path = tmp_path / METADATA_FILE
    journal, _ = SqliteJournal.open(path)
    secret = journal.secret
    assert len(secret) == 32
    journal.close()
    journal, _ = SqliteJournal.open(path)
    assert journal.secret == secret
    journal.close()
    with sqlite3.connect(path) as connection:  # as a release left it that knew no secret
        connection.execute("DELETE FROM meta WHERE key = 'session_secret'")
    connection.close()
    journal, tree = SqliteJournal.open(path)
    assert len(journal.secret) == 32
    assert journal.secret != secret
    assert tree.state() == Tree().state()
    journal.close()
