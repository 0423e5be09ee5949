"""The tree against a naive model that keeps a plain dictionary and defines ZooKeeper's data model in the simplest
way."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jesenska.base.limits import TREE_NODE_MAX_BYTES
from jesenska.metadata.acl import Identity, completed, digest_identity, shown
from jesenska.metadata.tree import CloseSession, Decision, Multi, OpenSession, Tree
from jesenska.metadata.tree_operations import (
    ADMIN,
    CREATE,
    OPEN_ACL,
    READ,
    WRITE,
    Acl,
    BadArgumentsError,
    BadVersionError,
    Check,
    Create,
    Delete,
    InvalidAclError,
    MultiError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Result,
    SessionExpiredError,
    SetAcl,
    SetData,
    Transaction,
    TreeCode,
    TreeError,
)
from tests.profiles import examples

NOW = 1_600_000_000_000


def tree_with_session() -> Tree:
    tree = Tree()
    tree.decide(OpenSession(7, 1000), NOW)
    return tree


def do(tree: Tree, *operations: Operation, session: int = 7, now: int = NOW) -> Decision:
    return tree.decide(Multi(session, operations), now)


def result(tree: Tree, *operations: Operation) -> Result:
    return do(tree, *operations).results[-1]


@dataclass
class Plain:
    """A node of the model."""

    data: bytes | None
    czxid: int
    ctime: int
    owner: int = 0
    version: int = 0
    aversion: int = 0
    acl: tuple[Acl, ...] = (Acl(31, "world", "anyone"),)
    mzxid: int = 0
    mtime: int = 0
    pzxid: int = 0
    created: int = 0
    deleted: int = 0


@dataclass
class Model:
    nodes: dict[str, Plain] = field(default_factory=lambda: {"/": Plain(b"", 0, 0)})
    sessions: set[int] = field(default_factory=set)
    zxid: int = 1

    def children(self, path: str) -> list[str]:
        prefix = "/" if path == "/" else path + "/"
        return sorted(
            other[len(prefix) :]
            for other in self.nodes
            if other != "/" and other.startswith(prefix) and "/" not in other[len(prefix) :]
        )

    def one(self, session: int, operation: Operation, zxid: int, now: int) -> str | None:
        """Carries out an operation. Returns the name of the error if it fails."""
        path = operation.path
        if isinstance(operation, Create):
            parent = path.rsplit("/", 1)[0] or "/"
            if parent not in self.nodes:
                return "NoNodeError"
            if operation.sequential:
                path += f"{self.nodes[parent].created:010d}"
            if path in self.nodes:
                return "NodeExistsError"
            if self.nodes[parent].owner:
                return "NoChildrenForEphemeralsError"
            self.nodes[path] = Plain(
                operation.data, zxid, now, session if operation.ephemeral else 0, mzxid=zxid, mtime=now, pzxid=zxid
            )
            self.nodes[parent].created += 1
            self.nodes[parent].pzxid = zxid
            return None
        if path not in self.nodes:
            return "NoNodeError"
        node = self.nodes[path]
        at = node.aversion if isinstance(operation, SetAcl) else node.version
        if operation.version not in (-1, at):
            return "BadVersionError"
        if isinstance(operation, Delete):
            if self.children(path):
                return "NotEmptyError"
            self.remove(path, zxid)
        elif isinstance(operation, SetData):
            node.data, node.version, node.mzxid, node.mtime = operation.data, node.version + 1, zxid, now
        elif isinstance(operation, SetAcl):
            node.acl, node.aversion = operation.acl, node.aversion + 1
        return None

    def remove(self, path: str, zxid: int) -> None:
        parent = path.rsplit("/", 1)[0] or "/"
        del self.nodes[path]
        self.nodes[parent].deleted += 1
        self.nodes[parent].pzxid = zxid


NAMES = st.sampled_from(["a", "b", "c"])
DATA = st.none() | st.binary(max_size=5)
ACLS = st.sampled_from([(Acl(31, "world", "anyone"),), (Acl(1, "digest", "x"),)])


@st.composite
def operations(draw: st.DrawFn, model: Model) -> Operation:
    """An operation that mostly makes sense: on nodes that are there, at versions that they have."""
    path = draw(st.sampled_from(sorted(model.nodes)))
    kind = draw(st.sampled_from(["create", "create", "delete", "delete", "set", "acl", "check"]))
    if kind == "create":
        return Create(
            path.rstrip("/") + "/" + draw(NAMES),
            draw(DATA),
            draw(st.booleans()),
            draw(st.sampled_from([False, False, True])),
        )
    if path == "/" and len(model.nodes) > 1:
        path = draw(st.sampled_from(sorted(set(model.nodes) - {"/"})))
    if path == "/" or draw(st.integers(0, 9)) == 0:
        path = path.rstrip("/") + "/" + draw(NAMES)
    node = model.nodes.get(path)
    version = draw(
        st.sampled_from(
            [-1, node.version, node.version, node.version + 1, node.aversion] if node is not None else [-1, 0]
        )
    )
    if kind == "delete":
        return Delete(path, version)
    if kind == "set":
        return SetData(path, draw(DATA), version)
    if kind == "acl":
        return SetAcl(path, draw(ACLS), version)
    return Check(path, version)


class TreeAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tree = Tree()
        self.model = Model()
        self.follower = Tree()
        self.transactions: list[Transaction] = []
        self.now = NOW

    def keep(self, decision: Decision) -> None:
        if decision.transaction is not None:
            self.transactions.append(decision.transaction)
            self.follower.apply(decision.transaction)
            self.model.zxid += 1

    @initialize()
    def first_session(self) -> None:
        self.open(1)

    @rule(session=st.integers(1, 3))
    def open(self, session: int) -> None:
        if session in self.model.sessions:
            with pytest.raises(BadArgumentsError):
                self.tree.decide(OpenSession(session, 100), self.now)
            return
        self.keep(self.tree.decide(OpenSession(session, 100), self.now))
        self.model.sessions.add(session)

    @rule(session=st.sampled_from([1, 2, 3]), seldom=st.integers(0, 3))
    def close_seldom(self, session: int, seldom: int) -> None:
        if seldom == 0:
            self.close(session)

    def close(self, session: int) -> None:
        if session not in self.model.sessions:
            with pytest.raises(SessionExpiredError):
                self.tree.decide(CloseSession(session), self.now)
            return
        for path in sorted(path for path, node in self.model.nodes.items() if node.owner == session):
            self.model.remove(path, self.model.zxid)
        self.keep(self.tree.decide(CloseSession(session), self.now))
        self.model.sessions.remove(session)

    @rule(session=st.sampled_from([1, 1, 2, 3]), count=st.sampled_from([1, 1, 1, 2, 3]), data=st.data())
    def multi(self, session: int, count: int, data: st.DataObject) -> None:
        self.now += 1
        asked = [data.draw(operations(self.model)) for _ in range(count)]
        self.do(session, asked)

    def do(self, session: int, operations: list[Operation]) -> None:
        if session not in self.model.sessions:
            with pytest.raises(SessionExpiredError):
                self.tree.decide(Multi(session, tuple(operations)), self.now)
            return
        after = copy.deepcopy(self.model)
        for index, operation in enumerate(operations):
            error = after.one(session, operation, self.model.zxid, self.now)
            if error is not None:
                before = self.tree.state()
                with pytest.raises((TreeError, MultiError)) as caught:
                    self.tree.decide(Multi(session, tuple(operations)), self.now)
                refused = caught.value.error if isinstance(caught.value, MultiError) else caught.value
                assert type(refused).__name__ == error
                if isinstance(caught.value, MultiError):
                    assert caught.value.index == index
                assert self.tree.state() == before
                return
        self.model = after
        self.keep(self.tree.decide(Multi(session, tuple(operations)), self.now))

    @precondition(lambda self: self.transactions)
    @rule()
    def a_tree_made_of_the_transactions_is_the_same(self) -> None:
        replayed = Tree()
        for transaction in self.transactions:
            replayed.apply(transaction)
        assert replayed.state() == self.tree.state()

    @rule()
    def a_copy_and_a_restored_tree_are_the_same(self) -> None:
        assert self.tree.copy().state() == self.tree.state()
        nodes = [(path, node.copy()) for path, node in self.tree.walk()]
        for _, node in nodes:
            node.children.clear()
        restored = Tree.restored(nodes, dict(self.tree.sessions), self.tree.last_zxid)
        assert restored.state() == self.tree.state()
        for session in self.tree.sessions:
            assert restored.ephemerals(session) == self.tree.ephemerals(session)

    @invariant()
    def the_follower_is_the_same(self) -> None:
        assert self.follower.state() == self.tree.state()

    @invariant()
    def the_model_says_the_same(self) -> None:
        assert set(self.model.nodes) == {path for path, _ in self.tree.walk() if not path.startswith("/zookeeper")}
        assert set(self.tree.sessions) == self.model.sessions
        for path, node in self.model.nodes.items():
            data, stat = self.tree.get(path)
            children = self.model.children(path)
            assert data == node.data
            assert [name for name in self.tree.children(path)[0] if name != "zookeeper"] == children
            assert self.tree.acl(path)[0] == node.acl
            extra = 1 if path == "/" else 0  # /zookeeper, a child that was not created
            assert (stat.version, stat.aversion, stat.cversion, stat.num_children) == (
                node.version, node.aversion, node.created + node.deleted - extra, len(children) + extra,
            )  # fmt: skip
            assert (stat.czxid, stat.mzxid, stat.pzxid, stat.ctime, stat.mtime) == (
                node.czxid,
                node.mzxid,
                node.pzxid,
                node.ctime,
                node.mtime,
            )
            assert (stat.ephemeral_owner, stat.data_length) == (node.owner, len(node.data or b""))


TestTreeAgainstModel = TreeAgainstModel.TestCase
TestTreeAgainstModel.settings = settings(max_examples=examples(3), stateful_step_count=50)


def test_a_sequential_node_may_have_a_number_alone_for_its_name_below_the_root_too() -> None:
    """As in ZooKeeper: `create -s /`."""
    tree = tree_with_session()
    assert result(tree, Create("/", sequential=True)).path == "/0000000000"
    assert result(tree, Create("/", sequential=True)).path == "/0000000001"
    with pytest.raises(NodeExistsError):
        result(tree, Create("/"))


def test_sequential_names_count_creations_and_not_what_is_left() -> None:
    tree = tree_with_session()
    do(tree, Create("/q"))
    assert result(tree, Create("/q/n-", sequential=True)).path == "/q/n-0000000000"
    do(tree, Delete("/q/n-0000000000"))
    assert result(tree, Create("/q/n-", sequential=True)).path == "/q/n-0000000001"
    do(tree, Create("/q/other"))
    assert result(tree, Create("/q/", sequential=True)).path == "/q/0000000003"
    assert tree.get("/q")[1].cversion == 5


def test_an_ephemeral_node_goes_with_its_session_and_has_no_children() -> None:
    tree = tree_with_session()
    tree.decide(OpenSession(8, 1000), NOW)
    do(tree, Create("/e", ephemeral=True))
    do(tree, Create("/f", ephemeral=True), session=8)
    with pytest.raises(NoChildrenForEphemeralsError):
        do(tree, Create("/e/child"))
    tree.decide(CloseSession(7), NOW)
    assert tree.exists("/e") is None
    assert tree.exists("/f") is not None


def test_a_multi_sees_its_own_changes_and_shares_one_zxid() -> None:
    tree = tree_with_session()
    decision = do(tree, Create("/a"), Create("/a/b"), SetData("/a", b"x", 0), Check("/a", 1), Delete("/a/b"))
    assert [item.path for item in decision.results] == ["/a", "/a/b", "/a", "/a", "/a/b"]
    data, stat = tree.get("/a")
    assert data == b"x"
    assert (stat.czxid, stat.mzxid, stat.pzxid) == (2, 2, 2)
    assert tree.last_zxid == 2


def test_a_refused_multi_tells_which_operation_and_changes_nothing() -> None:
    tree = tree_with_session()
    do(tree, Create("/a"))
    before = tree.state()
    with pytest.raises(MultiError) as caught:
        do(tree, SetData("/a", b"y"), Create("/a/b"), Delete("/a"), Create("/c"))
    assert caught.value.index == 2
    assert isinstance(caught.value.error, NotEmptyError)
    assert caught.value.codes == (TreeCode.OK, TreeCode.OK, TreeCode.NOT_EMPTY, TreeCode.RUNTIME_INCONSISTENCY)
    assert tree.state() == before


def test_only_checks_make_no_transaction() -> None:
    tree = tree_with_session()
    decision = do(tree, Check("/", 0))
    assert decision.transaction is None
    assert tree.last_zxid == 1


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "/a/",
        "//",
        "/a//b",
        "/./a",
        "/a/..",
        "/a\x00",
        "/a\x1f",
        "/\x7f",
        "/\x9f",
        "/\ud800",
        "/\uf8ff",
        "/\ufff0",
        "/\uffff",
    ],
)
def test_what_is_no_path_is_refused(path: str) -> None:
    tree = tree_with_session()
    with pytest.raises(BadArgumentsError):
        do(tree, Create(path))
    with pytest.raises(BadArgumentsError):
        tree.get(path)
    assert len(tree) == 4


@pytest.mark.parametrize("name", ["téma", *" ~\xa0\ud7ff\uf900\uffef\U00010000\U0001f600", "a b\xa0"])
def test_other_alphabets_are_paths(name: str) -> None:
    tree = tree_with_session()
    do(tree, Create(f"/{name}"))
    assert tree.exists(f"/{name}") is not None


def test_a_node_over_the_limit_is_refused() -> None:
    tree = tree_with_session()
    do(tree, Create("/a", b"x" * TREE_NODE_MAX_BYTES))
    with pytest.raises(BadArgumentsError, match="more than"):
        do(tree, SetData("/a", b"x" * (TREE_NODE_MAX_BYTES + 1)))
    with pytest.raises(BadArgumentsError, match="more than"):
        do(tree, Create("/b", b"x" * (TREE_NODE_MAX_BYTES + 1)))


def test_special_nodes_stay() -> None:
    tree = tree_with_session()
    for path in ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"):
        with pytest.raises(BadArgumentsError):
            do(tree, Delete(path))
    with pytest.raises(NodeExistsError):
        do(tree, Create("/"))


def test_errors_are_zookeepers() -> None:
    tree = tree_with_session()
    do(tree, Create("/a"))
    cases: list[tuple[Operation, type[TreeError], int]] = [
        (Create("/a"), NodeExistsError, -110),
        (Create("/x/y"), NoNodeError, -101),
        (Delete("/x"), NoNodeError, -101),
        (SetData("/a", b"", 5), BadVersionError, -103),
        (Check("/a", 5), BadVersionError, -103),
        (SetAcl("/a", ()), InvalidAclError, -114),
        (SetAcl("/a", (Acl(64, "world", "anyone"),)), InvalidAclError, -114),
        (Create("/b", acl=()), InvalidAclError, -114),
    ]
    for operation, kind, code in cases:
        with pytest.raises(kind) as caught:
            do(tree, operation)
        assert caught.value.code == code
    with pytest.raises(SessionExpiredError) as expired:
        do(tree, Create("/c"), session=99)
    assert expired.value.code == -112


def test_a_transaction_that_is_not_the_next_one_is_not_applied() -> None:
    with pytest.raises(AssertionError, match="does not follow"):
        Tree().apply(Transaction(2, NOW, ()))


def test_a_node_without_its_parent_is_no_tree() -> None:
    tree = tree_with_session()
    do(tree, Create("/a"), Create("/a/b"))
    nodes = [(path, node) for path, node in tree.walk() if path != "/a"]
    with pytest.raises(ValueError, match="no parent"):
        Tree.restored(nodes, {}, 5)
    with pytest.raises(ValueError, match="root"):
        Tree.restored([], {}, 5)


def test_rules_are_looked_at_where_a_request_says_who_asks() -> None:
    tree = tree_with_session()
    own, other = digest_identity(b"me:secret"), digest_identity(b"you:secret")
    do(
        tree,
        Create(
            "/a",
            acl=(Acl(READ | WRITE, own.scheme, own.id), Acl(READ, "world", "anyone"), Acl(ADMIN, "ip", "10.0.0.0/8")),
        ),
    )
    do(tree, Create("/b", acl=(Acl(CREATE, own.scheme, own.id),)), Create("/b/c"))

    def may(operation: Operation, *identities: Identity) -> bool:
        try:
            tree.copy().decide(Multi(7, (operation,), frozenset(identities)), NOW)
        except NoAuthError:
            return False
        except TreeError:
            pass
        return True

    assert may(SetData("/a", b""), own)
    assert not may(SetData("/a", b""), other)
    assert not may(SetData("/a", b""))
    assert may(Check("/a"))
    assert not may(Check("/b"), own)
    assert may(SetAcl("/a", OPEN_ACL), Identity("ip", "10.1.2.3"))
    assert not may(SetAcl("/a", OPEN_ACL), Identity("ip", "11.1.2.3"), own)
    assert may(Create("/b/d"), own)
    assert not may(Create("/b/d"), other)
    assert not may(Delete("/b/c"), own)
    assert not may(Delete("/b/none"), own)  # as ZooKeeper: the parent is asked before the node
    assert may(Delete("/b"))  # the root is open
    tree.require_permission("/a", READ, ())
    with pytest.raises(NoAuthError):
        tree.require_permission("/b", READ | ADMIN, (own,))


def test_rules_are_completed_and_shown_as_zookeeper_does() -> None:
    own = digest_identity(b"u:p")
    assert own == Identity("digest", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=")
    own_rule = Acl(31, *own)
    assert completed(
        "/a", (Acl(31, "auth", ""), own_rule, Acl(1, "world", "anyone")), (Identity("ip", "::1"), own)
    ) == (own_rule, Acl(1, "world", "anyone"))
    for wrong in (
        Acl(1, "auth", ""),
        Acl(1, "world", "bob"),
        Acl(1, "digest", "bob"),
        Acl(1, "ip", "bob"),
        Acl(1, "foo", "bob"),
    ):
        with pytest.raises(InvalidAclError):
            completed("/a", (wrong,), (Identity("ip", "::1"),))
    with pytest.raises(InvalidAclError):
        completed("/a", (), (own,))
    assert shown((own_rule,), (own,)) == (own_rule,)
    assert shown((own_rule, Acl(1, "world", "anyone")), ()) == (Acl(31, "digest", "u:x"), Acl(1, "world", "anyone"))


def test_the_root_begins_as_zookeepers() -> None:
    tree = tree_with_session()
    assert [
        (tree.get(path)[1].cversion, tree.get(path)[1].num_children) for path in ("/", "/zookeeper", "/zookeeper/quota")
    ] == [(-1, 1), (-2, 2), (0, 0)]
    assert result(tree, Create("/n-", sequential=True)).path == "/n-0000000000"
