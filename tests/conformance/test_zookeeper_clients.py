"""ZooKeeper's clients against our server: kazoo with its recipes, and ZooKeeper's own shell."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import need, need_modules
from tests.peers.zookeeper import Shell, shell
from tests.served_tree import ServedTree

need_modules("kazoo")

from kazoo.client import KazooClient, KazooState  # noqa: E402
from kazoo.exceptions import (  # noqa: E402
    BadVersionError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
)
from kazoo.security import make_digest_acl  # noqa: E402

WAIT = 20


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[ServedTree]:
    with ServedTree(tmp_path / "tree.db") as running:
        yield running


Clients = Callable[..., Any]


@pytest.fixture
def client(tree: ServedTree) -> Iterator[Clients]:
    with contextlib.ExitStack() as stack:

        def start(chroot: str = "", **options: Any) -> Any:
            made = KazooClient(tree.address + chroot, timeout=4.0, **options)
            stack.callback(made.close)
            stack.callback(made.stop)
            made.start(WAIT)
            return made

        yield start


def test_kazoo_makes_reads_changes_and_deletes(client: Clients) -> None:
    kazoo = client()
    assert kazoo.create("/a", b"x") == "/a"
    assert kazoo.get("/a")[0] == b"x"
    stat = kazoo.set("/a", b"yy", version=0)
    assert (stat.version, stat.data_length) == (1, 2)
    assert kazoo.exists("/none") is None
    path, stat = kazoo.create("/a/b", b"", include_data=True)
    assert path == "/a/b"
    assert stat.czxid == kazoo.exists("/a/b").czxid
    kazoo.create("/a/c/d/e", makepath=True)
    assert sorted(kazoo.get_children("/a")) == ["b", "c"]
    names, stat = kazoo.get_children("/a", include_data=True)
    assert stat.numChildren == len(names) == 2
    refusals: list[tuple[Any, Callable[[], Any]]] = [
        (NodeExistsError, lambda: kazoo.create("/a")),
        (NoNodeError, lambda: kazoo.get("/none")),
        (BadVersionError, lambda: kazoo.set("/a", b"", version=9)),
        (NotEmptyError, lambda: kazoo.delete("/a")),
    ]
    for error, work in refusals:
        with pytest.raises(error):
            work()
    kazoo.delete("/a", recursive=True)
    assert kazoo.exists("/a") is None
    assert kazoo.sync("/") == "/"
    assert kazoo.server_version()[:2] == (3, 8)
    assert kazoo.command(b"ruok") == "imok"


def test_kazoo_works_in_a_chroot(client: Clients) -> None:
    plain = client()
    plain.create("/below")
    kazoo = client("/below")
    kazoo.create("/a", b"x")
    assert plain.get("/below/a")[0] == b"x"


def test_kazoo_numbers_nodes_and_its_ephemeral_ones_go(client: Clients) -> None:
    kazoo, other = client(), client()
    assert [kazoo.create("/n-", sequence=True) for _ in range(3)] == [f"/n-{number:010d}" for number in range(3)]
    path = kazoo.create("/e-", b"", ephemeral=True, sequence=True)
    assert path == "/e-0000000003"
    with pytest.raises(NoChildrenForEphemeralsError):
        kazoo.create(path + "/x")
    gone = threading.Event()
    other.sync("/")
    assert other.exists(path, watch=lambda event: gone.set()).ephemeralOwner == kazoo.client_id[0]
    kazoo.stop()
    assert gone.wait(WAIT)
    assert other.exists(path) is None


def test_kazoo_hears_of_changes(client: Clients) -> None:
    kazoo, other = client(), client()
    heard: queue.Queue[tuple[str, str]] = queue.Queue()
    kazoo.create("/a")

    def note(event: Any) -> None:
        heard.put((event.type, event.path))

    kazoo.get("/a", watch=note)
    kazoo.get_children("/a", watch=note)
    kazoo.exists("/later", watch=note)
    other.set("/a", b"1")
    other.set("/a", b"2")
    other.create("/a/b")
    other.create("/later")
    other.delete("/later")
    assert [heard.get(timeout=WAIT) for _ in range(3)] == [("CHANGED", "/a"), ("CHILD", "/a"), ("CREATED", "/later")]
    kazoo.sync("/")
    assert heard.empty()
    values: queue.Queue[bytes] = queue.Queue()

    def changed(data: bytes, stat: Any) -> None:
        values.put(data)

    kazoo.DataWatch("/a", changed)

    assert values.get(timeout=WAIT) == b"2"
    for number in range(5):
        other.set("/a", b"%d" % number)
        assert values.get(timeout=WAIT) == b"%d" % number


def test_kazoo_does_several_things_as_one(client: Clients) -> None:
    kazoo = client()
    kazoo.create("/a", b"x")
    transaction = kazoo.transaction()
    transaction.check("/a", version=0)
    transaction.create("/b", b"y")
    transaction.set_data("/a", b"z", version=0)
    transaction.delete("/b")
    checked, created, changed, deleted = transaction.commit()
    assert (checked, created, changed.version, deleted) == (True, "/b", 1, True)
    transaction = kazoo.transaction()
    transaction.create("/c")
    transaction.check("/a", version=0)
    transaction.delete("/a")
    before, refused, after = transaction.commit()
    assert isinstance(before, RolledBackError)
    assert isinstance(refused, BadVersionError)
    assert type(after).__name__ == "RuntimeInconsistency"
    assert kazoo.exists("/c") is None


def test_kazoo_shows_who_it_is(client: Clients) -> None:
    kazoo = client(auth_data=[("digest", "me:secret")])
    other = client()
    kazoo.create("/a", b"x", acl=[make_digest_acl("me", "secret", all=True)])
    assert kazoo.get("/a")[0] == b"x"
    other.sync("/")
    with pytest.raises(NoAuthError):
        other.get("/a")
    other.add_auth("digest", "me:secret")
    assert other.get("/a")[0] == b"x"
    acl, _ = other.get_acls("/a")
    assert acl == [make_digest_acl("me", "secret", all=True)]
    other.set_acls("/a", [make_digest_acl("you", "secret", read=True)])
    with pytest.raises(NoAuthError):
        kazoo.set("/a", b"y")


def cut(tree: ServedTree, session_id: int) -> None:
    """Ends the connection of a session."""

    def close() -> None:
        connection = tree.server.sessions.connection(session_id)
        assert connection is not None
        connection.close()

    tree.call(close)


def test_kazoo_comes_back_to_its_session(tree: ServedTree, client: Clients) -> None:
    kazoo, other = client(), client()
    states: queue.Queue[Any] = queue.Queue()
    kazoo.add_listener(states.put)
    kazoo.create("/e", ephemeral=True)
    kazoo.create("/a", b"0")
    values: queue.Queue[bytes] = queue.Queue()
    kazoo.DataWatch("/a", lambda data, stat: values.put(data))
    assert values.get(timeout=WAIT) == b"0"
    session = kazoo.client_id
    cut(tree, session[0])
    assert states.get(timeout=WAIT) == KazooState.SUSPENDED
    assert states.get(timeout=WAIT) == KazooState.CONNECTED
    assert kazoo.client_id == session
    assert kazoo.exists("/e") is not None
    other.set("/a", b"1")
    assert values.get(timeout=WAIT) == b"1"


def test_kazoo_is_told_that_its_session_is_over(tree: ServedTree, client: Clients) -> None:
    kazoo = client()
    states: queue.Queue[Any] = queue.Queue()
    kazoo.add_listener(states.put)
    kazoo.create("/e", ephemeral=True)
    first = kazoo.client_id[0]
    tree.call(lambda: tree.server.close_session(first, lambda error: None))
    seen = [states.get(timeout=WAIT)]
    while seen[-1] != KazooState.CONNECTED:
        seen.append(states.get(timeout=WAIT))
    assert KazooState.LOST in seen
    assert kazoo.client_id[0] != first
    assert kazoo.exists("/e") is None


def test_kazoos_lock_is_held_by_one_at_a_time(client: Clients) -> None:
    holders: list[str] = []
    most: list[int] = []

    def work(name: str, kazoo: Any) -> None:
        lock = kazoo.Lock("/lock", name)
        for _ in range(5):
            with lock:
                holders.append(name)
                most.append(len(holders))
                kazoo.sync("/")
                holders.remove(name)

    threads = [threading.Thread(target=work, args=(f"client-{number}", client())) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert most == [1] * 20


def test_kazoos_election_passes_on_when_the_leader_ends(client: Clients) -> None:
    one, other = client(), client()
    leads: queue.Queue[str] = queue.Queue()
    leave = threading.Event()

    def lead(name: str) -> None:
        leads.put(name)
        if name == "one":
            assert leave.wait(60)

    first = threading.Thread(target=one.Election("/election", "one").run, args=(lead, "one"))
    first.start()
    assert leads.get(timeout=WAIT) == "one"
    second = threading.Thread(target=other.Election("/election", "other").run, args=(lead, "other"))
    second.start()
    contenders = other.Election("/election", "other")
    while len(contenders.contenders()) < 2:
        other.sync("/")
    assert leads.empty()
    leave.set()
    assert leads.get(timeout=WAIT) == "other"
    first.join(60)
    second.join(60)
    assert not (first.is_alive() or second.is_alive())


@pytest.mark.conformance
def test_zookeepers_own_client_has_its_watches_set_again(tree: ServedTree, client: Clients) -> None:
    """kazoo asks again itself; the Java client sends SetWatches when it comes back."""
    need("java", "mvn")
    kazoo = client()
    kazoo.create("/a", b"0")
    with Shell(tree.server.port) as java:
        java.say("create -e /e x")
        java.hear("Created /e")
        java.say("get -w /a")
        session_id = kazoo.exists("/e").ephemeralOwner
        java.say("ls -w /")  # answered after the watch of /a stands
        java.hear("[a, e, zookeeper]")
        before = tree.server.figures.received
        cut(tree, session_id)
        java.hear("type:None")  # disconnected, then connected
        java.hear("state:SyncConnected")
        assert tree.server.figures.received > before
        kazoo.set("/a", b"1")
        java.hear("type:NodeDataChanged path:/a")
        kazoo.create("/b")
        java.hear("type:NodeChildrenChanged path:/")
        assert kazoo.exists("/e") is not None


@pytest.mark.conformance
def test_zookeepers_own_shell_works(tree: ServedTree) -> None:
    need("java", "mvn")
    said = shell(
        tree.server.port,
        "create /a one",
        "create -s /a/n- x",
        "create -e /a/e x",
        "create /a/b/c x",
        "create /a/b y",
        "create /a/b/c z",
        "ls /a",
        "ls -R /a",
        "get -s /a",
        "set /a two",
        "get /a",
        "set -v 7 /a three",
        "stat /a",
        "getAcl /a",
        "addauth digest u:p",
        "setAcl /a/b auth:u:p:cdrwa",
        "getAcl /a/b",
        "delete /a/b",
        "deleteall /a/b",
        "ls /a",
        "deleteall /a",
        "ls /",
    )
    for line in (
        "Created /a",
        "Created /a/n-0000000000",
        "Created /a/e",
        "Created /a/b",
        "Created /a/b/c",
        "[b, e, n-0000000000]",
        "/a/b/c",
        "one",
        "two",
        "dataVersion = 1",
        "numChildren = 3",
        "dataLength = 3",
        "version No is not valid : /a",
        "'world,'anyone",
        "'digest,'u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=",
        "Node not empty: /a/b",
        "[e, n-0000000000]",
        "[zookeeper]",
    ):
        assert line in said.splitlines(), f"{line!r} is missing in:\n{said}"
    assert "Node does not exist: /a/b/c" in said
