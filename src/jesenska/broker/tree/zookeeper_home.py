"""A broker's metadata tree on the ZooKeeper servers that `zookeeper.connect` names: jesenska's or Apache
ZooKeeper's."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from jesenska.base.errors import JesenskaError
from jesenska.broker.machine import Machine
from jesenska.config.layers import BrokerConfig
from jesenska.controller import reading
from jesenska.controller.context import ControllerContext
from jesenska.metadata.renewed_store import RenewedStore
from jesenska.metadata.store import ChrootStore, Store
from jesenska.metadata.tree_operations import ConnectionLossError, NoAuthError, NodeExistsError, TreeError
from jesenska.metadata.zookeeper.client.access import TreeAccess
from jesenska.metadata.zookeeper.client.client import ZooKeeperStore
from jesenska.metadata.zookeeper.client.connect_string import ConnectString
from jesenska.metadata.zookeeper.client.failures import explained


class ZooKeeperHome:
    """A metadata tree on ZooKeeper servers. If `zookeeper.connect` ends in a path (chroot), the broker's tree is below
    that path, which is created if it is missing."""

    is_shared = True
    #: Half of the megabyte that ZooKeeper accepts in one request (jute.maxbuffer).
    change_max_bytes: int | None = 512 * 1024
    served_at: tuple[str, int] | None = None

    def __init__(
        self, store: RenewedStore, root: Root, name: str, session_timeout_ms: int, patience_seconds: float, at_once: int
    ) -> None:
        self._renewed = store
        self._root = root
        self.name = name
        self._at_once = at_once
        self.store: Store = store
        self.session_timeout_ms = session_timeout_ms
        self.patience_seconds = patience_seconds

    @staticmethod
    async def open(servers: str, config: BrokerConfig, machine: Machine) -> ZooKeeperHome:
        try:
            where = ConnectString.parse(servers)
        except ValueError as error:
            raise JesenskaError(f"zookeeper.connect={servers} is not understood: {error}") from error
        session_ms = config.integer("zookeeper.session.timeout.ms")
        wanted_ms = config.value("zookeeper.connection.timeout.ms")
        connect_ms = wanted_ms if isinstance(wanted_ms, int) else session_ms
        access = access_of_broker(config, machine)
        is_protected = config.boolean("zookeeper.set.acl")
        if is_protected and not access.is_identified:
            raise JesenskaError(
                "zookeeper.set.acl=true protects nodes for the broker's login, but it has none: name a JAAS file with "
                'an entry Client, KAFKA_OPTS="-Djava.security.auth.login.config=FILE", or a certificate, '
                "zookeeper.ssl.keystore.location."
            )

        async def connect() -> Store:
            store = await ZooKeeperStore.connect(
                where,
                session_timeout_ms=session_ms,
                connect_timeout_ms=connect_ms,
                streams=machine.streams,
                random=machine.random,
                access=access,
            )
            if not where.chroot:
                return protected(store)
            try:
                await root.found(protected(store))
            except BaseException:
                await store.close()
                raise
            return protected(ChrootStore(store, where.chroot))

        def protected(store: Store) -> Store:
            if not is_protected:
                return store
            from jesenska.metadata.zookeeper.node_acls import ProtectingStore

            return ProtectingStore(store)

        root = Root(where.chroot)
        try:
            with explained(servers, "zookeeper.ssl.*"):
                store = await RenewedStore.open(connect)
                await _first_request(store)
        except ConnectionLossError as error:
            raise JesenskaError(
                f"There is no ZooKeeper at {servers}: start ZooKeeper, correct zookeeper.connect, or leave "
                "zookeeper.connect out for a single broker."
            ) from error
        except TreeError as error:
            raise JesenskaError(f"The ZooKeeper at {servers} refuses this broker: {error}") from error
        return ZooKeeperHome(
            store,
            root,
            f"the tree at {servers}",
            session_ms,
            connect_ms / 1000,
            config.integer("zookeeper.max.in.flight.requests"),
        )

    async def prepare(self) -> None:
        """Creates the node of the chroot, if there is a chroot."""
        await self._root.make()

    async def facts(self) -> ControllerContext:
        return await reading.load(self.store, at_once=self._at_once)

    async def serve(self) -> None:
        """Does nothing, because the ZooKeeper server accepts other clients at any time."""

    def on_renewed(self, work: Callable[[], Awaitable[None]]) -> None:
        self._renewed.on_renewed(work)

    async def close(self) -> None:
        await self.store.close()


async def _first_request(store: RenewedStore) -> None:
    """Raises NoAuthError, and closes the store, if the server wants a login. A server says so only at a request."""
    try:
        await store.exists("/")
    except ConnectionLossError:
        pass  # the start waits until there is a connection again
    except NoAuthError as error:
        if error.reason:  # otherwise it is about the node
            await store.close()
            raise


def access_of_broker(config: BrokerConfig, machine: Machine) -> TreeAccess:
    """Returns how the broker's connections are protected: by TLS if `zookeeper.ssl.client.enable` is set, and by the
    login in a JAAS file if there is one. Raises InvalidConfigError with one sentence if this cannot be used."""
    login_file = config.string("jesenska.zookeeper.login.file")
    is_plain = login_file is None and "-D" not in os.environ.get("KAFKA_OPTS", "")
    if is_plain and not config.boolean("zookeeper.ssl.client.enable"):
        return TreeAccess()
    from jesenska.metadata.zookeeper.client.access_settings import tree_access

    return tree_access(config.value, os.environ, login_file=login_file, secret_bytes=machine.secret_bytes)


class Root:
    """The chroot of a tree. Its node is created only when the broker has checked that the path is right (`make`). In
    later sessions the node is created again if it is missing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._store: Store | None = None
        self._is_wanted = False

    async def found(self, store: Store) -> None:
        """Called with each new session. `store` gives access to the whole tree of the server."""
        self._store = store
        if self._is_wanted:
            await self.make()

    async def make(self) -> None:
        self._is_wanted = True
        if self._path and self._store is not None:
            await _make(self._store, self._path)


async def _make(store: Store, path: str) -> None:
    """Creates a node and its parents, if they are missing."""
    steps = path.split("/")
    for depth in range(2, len(steps) + 1):
        above = "/".join(steps[:depth])
        if await store.exists(above) is None:
            try:
                await store.create(above)
            except NodeExistsError:
                pass  # another broker was faster
