"""A `Store` (the interface to the metadata tree) over the network. The server is jesenska's own ZooKeeper server, or
an ensemble of Apache ZooKeeper 3.5 or later. `client.session` manages the session: its states, and the requests that
fail when a connection ends.

The client remembers a watch under its path until the event arrives (`client.watches`). Answers arrive in the order of
the requests.

One difference from the embedded store: a multi of several operations cannot change ACLs, because the protocol does not
support it."""

from __future__ import annotations

from collections.abc import Sequence

from jesenska.base.clock import Random, system_random
from jesenska.metadata.store import ChrootStore, SessionState, StateCallback, Store, WatchCallback
from jesenska.metadata.tree import check_path
from jesenska.metadata.tree_operations import (
    ANY_VERSION,
    OPEN_ACL,
    Acl,
    ConnectionLossError,
    Create,
    Delete,
    MultiError,
    NoAuthError,
    Operation,
    Result,
    SessionExpiredError,
    SetAcl,
    SetData,
    Stat,
    TreeCode,
    TreeError,
)
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.client.access import TreeAccess
from jesenska.metadata.zookeeper.client.connect_string import ConnectString
from jesenska.metadata.zookeeper.client.operations import read_result, require_ok, results_of, sub_request
from jesenska.metadata.zookeeper.client.session import ClientSession
from jesenska.metadata.zookeeper.client.watches import keep
from jesenska.metadata.zookeeper.messages import OpCode, PathRequest, Reader, SetAclRequest, WatchableRequest
from jesenska.metadata.zookeeper.streams import Streams, SystemStreams


async def connect(
    servers: str,
    *,
    session_timeout_ms: int = 18_000,
    connect_timeout_ms: int | None = None,
    auth: Sequence[tuple[str, bytes]] = (),
    any_release: bool = False,
    access: TreeAccess | None = None,
) -> Store:
    """Opens a new session on one of the servers in `host:port,host:port/chroot`. All paths are then relative to the
    chroot. The chroot must exist; this function does not check it.

    Raises ConnectionLossError if no server answers in time (default: the session's timeout), and NoAuthError if the
    server refuses the login or an identity. `any_release`: the server may be older than 3.5; `create` then returns no
    stat. `access`: TLS and the login (default: neither)."""
    where = ConnectString.parse(servers)
    store = await ZooKeeperStore.connect(
        where, session_timeout_ms=session_timeout_ms, connect_timeout_ms=connect_timeout_ms, auth=auth, access=access
    )
    store.create_code = OpCode.CREATE if any_release else OpCode.CREATE2
    return ChrootStore(store, where.chroot) if where.chroot else store


class ZooKeeperStore:
    """A `Store` that sends each operation to a ZooKeeper server, over one session. `connect` creates it."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._watches = session.watches
        #: The type of request that creates nodes. Servers before 3.5 know only CREATE.
        self.create_code = OpCode.CREATE2

    @staticmethod
    async def connect(
        where: ConnectString,
        *,
        session_timeout_ms: int = 18_000,
        connect_timeout_ms: int | None = None,
        auth: Sequence[tuple[str, bytes]] = (),
        streams: Streams | None = None,
        random: Random | None = None,
        access: TreeAccess | None = None,
    ) -> ZooKeeperStore:
        """Opens a session as the module's function `connect` does, but without a chroot. By default, connections and
        random numbers come from the operating system."""
        session = ClientSession(
            where, session_timeout_ms, auth, streams or SystemStreams(), random or system_random(), access
        )
        await session.open(connect_timeout_ms)
        return ZooKeeperStore(session)

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def timeout_ms(self) -> int:
        """Returns the session's timeout in milliseconds, as the server granted it."""
        return self._session.timeout_ms

    @property
    def state(self) -> SessionState:
        return self._session.state

    def on_state(self, callback: StateCallback) -> None:
        self._session.state_callbacks.append(callback)

    # Operations

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        def decode(code: TreeCode | int, reader: Reader) -> tuple[bytes, Stat]:
            require_ok(code, path)
            answer = messages.read(messages.GetDataResponse, reader)
            keep(self._watches.data, path, watch)
            return answer.data or b"", answer.stat

        check_path(path)
        return await self._session.ask(OpCode.GET_DATA, path, WatchableRequest(path, watch is not None), decode)

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        def decode(code: TreeCode | int, reader: Reader) -> Stat | None:
            if code == TreeCode.NO_NODE:
                keep(self._watches.exist, path, watch)
                return None
            require_ok(code, path)
            keep(self._watches.data, path, watch)
            return messages.read(messages.StatResponse, reader).stat

        check_path(path)
        return await self._session.ask(OpCode.EXISTS, path, WatchableRequest(path, watch is not None), decode)

    async def children(self, path: str, watch: WatchCallback | None = None) -> tuple[list[str], Stat]:
        def decode(code: TreeCode | int, reader: Reader) -> tuple[list[str], Stat]:
            require_ok(code, path)
            answer = messages.read(messages.GetChildren2Response, reader)
            keep(self._watches.child, path, watch)
            return sorted(answer.children), answer.stat

        check_path(path)
        return await self._session.ask(OpCode.GET_CHILDREN2, path, WatchableRequest(path, watch is not None), decode)

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        acl: tuple[Acl, ...] = OPEN_ACL,
    ) -> Result:
        kind, body = sub_request(Create(path, data, ephemeral, sequential, acl), self.create_code)
        return await self._session.ask(kind, path, body, lambda code, reader: read_result(kind, path, code, reader))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        kind, body = sub_request(SetData(path, data, version))
        result = await self._session.ask(kind, path, body, lambda code, reader: read_result(kind, path, code, reader))
        assert result.stat is not None
        return result.stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        kind, body = sub_request(Delete(path, version))
        await self._session.ask(kind, path, body, lambda code, reader: read_result(kind, path, code, reader))

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        if not operations:
            return ()
        if len(operations) == 1 and isinstance(operations[0], SetAcl):
            return (await self._set_acl(operations[0]),)
        requests = []
        for index, operation in enumerate(operations):
            try:
                requests.append(sub_request(operation, self.create_code))
            except TreeError as error:
                raise MultiError(index, len(operations), error) from error

        def decode(code: TreeCode | int, reader: Reader) -> tuple[Result, ...]:
            require_ok(code, operations[0].path)
            return results_of(operations, messages.read_multi_response(reader))

        return await self._session.ask(
            OpCode.MULTI, operations[0].path, messages.write_multi(bytearray(), requests), decode
        )

    async def sync(self, path: str = "/") -> None:
        check_path(path)
        await self._session.ask(OpCode.SYNC, path, PathRequest(path), lambda code, _: require_ok(code, path))

    # Operations of ZooKeeper's own shell (zkCli) that a `Store` does not have

    async def get_acl(self, path: str) -> tuple[tuple[Acl, ...], Stat]:
        """Returns the access rules (ACL) of a node, and its stat. Raises NoNodeError if the node does not exist."""

        def decode(code: TreeCode | int, reader: Reader) -> tuple[tuple[Acl, ...], Stat]:
            require_ok(code, path)
            answer = messages.read(messages.GetAclResponse, reader)
            return answer.acl, answer.stat

        check_path(path)
        return await self._session.ask(OpCode.GET_ACL, path, PathRequest(path), decode)

    async def ephemerals(self, prefix: str = "/") -> list[str]:
        """Returns the sorted paths of this session's ephemeral nodes that begin with the prefix."""

        def decode(code: TreeCode | int, reader: Reader) -> list[str]:
            require_ok(code, prefix)
            return sorted(messages.read(messages.NamesResponse, reader).names)

        check_path(prefix)
        return await self._session.ask(OpCode.GET_EPHEMERALS, prefix, PathRequest(prefix), decode)

    async def who_am_i(self) -> list[tuple[str, str]]:
        """Returns the scheme and name of each identity that the server knows for this connection. Raises
        UnimplementedError if the server is older than 3.7."""

        def decode(code: TreeCode | int, reader: Reader) -> list[tuple[str, str]]:
            require_ok(code, "/")
            return [(scheme, name) for scheme, name in messages.read(messages.WhoAmIResponse, reader).identities]

        return await self._session.ask(OpCode.WHO_AM_I, "/", bytearray(), decode)

    async def add_auth(self, scheme: str, auth: bytes) -> None:
        """Sends the server one more identity (scheme and credentials), which is sent again on later connections.
        Raises NoAuthError if the server refuses the identity; the session is then closed."""
        self._session.show(scheme, auth)
        try:
            await self.sync()  # answers arrive in order
        except SessionExpiredError as error:
            raise NoAuthError("/", f"an identity of the scheme {scheme} was not accepted") from error
        self._session.keep_identity(scheme, auth)

    async def close(self) -> None:
        await self._session.close()

    async def _set_acl(self, operation: SetAcl) -> Result:
        path, acl, version = operation.path, operation.acl, operation.version

        def decode(code: TreeCode | int, reader: Reader) -> Result:
            try:
                require_ok(code, path)
            except (ConnectionLossError, SessionExpiredError):
                raise
            except TreeError as error:
                raise MultiError(0, 1, error) from error
            return Result(path, messages.read(messages.StatResponse, reader).stat)

        return await self._session.ask(OpCode.SET_ACL, path, SetAclRequest(path, acl, version), decode)
