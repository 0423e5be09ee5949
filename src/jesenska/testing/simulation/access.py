"""Simulations of users whose passwords and ACLs change while brokers fail and lose the metadata tree (ZooKeeper's
nodes). Brokers have an authorizer and a listener with SASL. There are two kinds of programs:

administrator    creates a user, adds and deletes ACLs of the user, and at last deletes the user's password. Then it
                 begins with the next user
visitor          logs in as the present user at some broker, and tries to read from topics and to write to them. Half
                 of the connections stay open until the broker closes them, and do not log in again

The invariant: a broker allows an operation only if an ACL allowed it within the last second, and only to a user that
had a password when the session may have begun. A broker that cannot reach the tree does not know of changes. So the
second begins with the first transaction of the tree of which the broker was not told. If a change gets no answer, both
states count as possible from then on, and the administrator begins with the next user.

At the end an allowed user must be allowed by every broker, and be refused by every broker when the ACL is deleted."""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.user_administration import ScramPassword
from jesenska.net.channel import Channel, open_channel
from jesenska.net.connection import ReadBuffer
from jesenska.records.encode import encode_batch
from jesenska.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from jesenska.security.client_security import client_security
from jesenska.testing.simulation.clients import cluster_of, create_topic
from jesenska.testing.simulation.machine.host import BrokerHost
from jesenska.testing.simulation.machine.process import Process
from jesenska.testing.simulation.schedule import _REST_SECONDS, Simulation, simulation
from jesenska.testing.simulation.watches.history import ViolationError
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)

ACCESS_SECONDS, ACCESS_FAULTS = 30.0, 6
TOPICS: Final = ("order", "orders", "orders-old")
_PREFIXES: Final = ("order", "orders", "orders-o")
_SASL_PORT: Final = 9093
_MECHANISM: Final = "SCRAM-SHA-256"
#: The lifetime of a session, after which a client must log in again.
_SESSION_SECONDS: Final = 3.0
#: The seconds between two looks at the brokers and the tree.
_WATCH_SECONDS: Final = 0.05
#: The time in seconds within which a broker that reaches the tree must know a change.
_KNOWN_WITHIN_SECONDS: Final = 1.0
_VISITORS: Final = 3
#: The highest versions that name topics by their names.
_FETCH_VERSION, _PRODUCE_VERSION = 12, 12
#: The seconds for which a visitor keeps a connection that the broker does not close.
_KEPT_SECONDS: Final = 8.0
_SETTINGS: Final = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": _MECHANISM,
    "connections.max.reauth.ms": str(int(_SESSION_SECONDS * 1000)),
}


@dataclass
class _Rights:
    """The rights of a user after a change. `done_at` is None if the change was not answered."""

    bindings: frozenset[AclBinding]
    has_password: bool
    begun_at: float
    done_at: float | None = None

    def allow(self, operation: AclOperation, topic: str) -> bool:
        decided = [
            entry.permission
            for pattern, entry in self.bindings
            if entry.operation in (operation, AclOperation.ALL) and _matches(pattern, topic)
        ]
        return bool(decided) and Permission.DENY not in decided


def _matches(pattern: ResourcePattern, topic: str) -> bool:
    if pattern.pattern_type is PatternType.PREFIXED:
        return topic.startswith(pattern.name)
    return pattern.name in ("*", topic)


@dataclass
class User:
    """A user with all its rights so far. In the beginning the user does not exist."""

    name: str
    rights: list[_Rights] = field(default_factory=lambda: [_Rights(frozenset(), False, -math.inf, -math.inf)])

    @property
    def password(self) -> str:
        return f"password of {self.name}"

    def begin(self, bindings: frozenset[AclBinding], has_password: bool, now: float) -> _Rights:
        self.rights.append(_Rights(bindings, has_password, now))
        return self.rights[-1]

    def may_have_had(self, since: float, until: float, wanted: Callable[[_Rights], bool]) -> bool:
        """Returns True if rights that fulfil `wanted` were possibly in force at some time from `since` to `until`."""
        ends: list[float | None] = [rights.done_at for rights in self.rights[1:]]
        return any(
            rights.begun_at <= until and since <= (math.inf if end is None else end) and wanted(rights)
            for rights, end in zip(self.rights, [*ends, None], strict=True)
        )


class _Deed(NamedTuple):
    """An operation that a broker has allowed. `since` is the earliest time whose ACLs the broker may have used,
    `login_since` the earliest time whose passwords it may have used."""

    user: User
    operation: AclOperation
    topic: str
    broker: str
    at: float
    since: float
    login_since: float

    def is_allowed(self) -> bool:
        return self.user.may_have_had(self.since, self.at, lambda rights: rights.allow(self.operation, self.topic))


def _has_password(rights: _Rights) -> bool:
    return rights.has_password


class _TreeTimes:
    """The number of the last transaction (zxid) of the metadata tree, at several times."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._zxids: list[int] = []

    def look(self, now: float, zxid: int) -> None:
        if not self._zxids or zxid > self._zxids[-1]:
            self._times.append(now)
            self._zxids.append(zxid)

    def after(self, zxid: int) -> float:
        """Returns the earliest time at which the tree may have had a transaction after this one; infinity if there is
        none."""
        later = bisect_right(self._zxids, zxid)
        return self._times[later] - _WATCH_SECONDS if later < len(self._zxids) else math.inf


class _Known:
    """The last transaction of the tree that a broker was told of, at several times. A broker with a new session must
    first read everything again. During this time, but for a second at most while the tree can be reached, it counts as
    knowing what it knew before."""

    def __init__(self, host: BrokerHost) -> None:
        self._host = host
        self._process: Process | None = None
        self._times: list[float] = []
        self._zxids: list[int] = []
        self._reads_since: float | None = None

    def look(self, now: float) -> None:
        host = self._host
        if self._process is not host.program.process:
            self._process, self._reads_since = host.program.process, None
            self._times, self._zxids = [], []
        broker: Any = host.program.broker
        if not host.is_up or broker is None:
            return
        store = broker._serving.place.store
        session = store._store._session
        machines = (broker.replication.settings._machine, broker._serving.authorization.rules._machine)
        if store._renewing is None and all(one.is_idle and not one._failures for one in machines):
            self._reads_since = None
        elif self._reads_since is None:
            self._reads_since = now
        if self._zxids and self._reads_since is not None and session._heard < self._reads_since + _KNOWN_WITHIN_SECONDS:
            return
        if not self._zxids or session._last_zxid > self._zxids[-1]:
            self._times.append(now)
            self._zxids.append(session._last_zxid)

    def at(self, time: float) -> int | None:
        """Returns the last transaction that the broker was told of at this time. If the broker's process is younger,
        returns the first one; None if the broker was not up yet."""
        return self._zxids[max(0, bisect_right(self._times, time) - 1)] if self._zxids else None


class Administrator:
    """Creates users and changes their rights, one user after the other."""

    def __init__(self, process: Process, bootstrap: str) -> None:
        self.process = process
        self.is_stopping = False
        self.users: list[User] = []
        self._cluster = cluster_of(process, bootstrap)
        self._admin = Admin(self._cluster)

    async def run(self) -> None:
        while not self.is_stopping:
            if not await self._one_user():
                await asyncio.sleep(0.2)
        await self._cluster.close()
        self.process.world.tell(self.process.name, f"has administered {len(self.users)} users")

    async def _one_user(self) -> bool:
        """Administers one user from its creation to its end. Returns False if a change got no answer."""
        random = self.process.world.random
        user = self.new_user()
        if not await self.set_password(user, True):
            return False
        for _ in range(random.randint(3, 7)):
            if self.is_stopping:
                break
            bindings = user.rights[-1].bindings
            gone = random.choice(sorted(bindings)) if bindings and random.random() < 0.45 else None
            changed = await (self.delete(user, gone) if gone else self.add(user, self._new_binding(user)))
            if not changed:
                return False
            await asyncio.sleep(random.uniform(0.05, 2.0))
        if not await self.set_password(user, False):
            return False
        # The visitors use the user's connections as long as the brokers allow it.
        await asyncio.sleep(random.uniform(0.0, _SESSION_SECONDS + 2.0))
        return True

    def new_user(self) -> User:
        self.users.append(User(f"{self.process.name}-{len(self.users)}"))
        return self.users[-1]

    def _new_binding(self, user: User) -> AclBinding:
        random = self.process.world.random
        if random.random() < 0.4:
            pattern = ResourcePattern(ResourceType.TOPIC, random.choice(_PREFIXES), PatternType.PREFIXED)
        else:
            pattern = ResourcePattern(ResourceType.TOPIC, random.choice((*TOPICS, "*")))
        operation = random.choice((AclOperation.READ, AclOperation.WRITE, AclOperation.ALL))
        permission = Permission.DENY if random.random() < 0.3 else Permission.ALLOW
        return AclBinding(pattern, AclEntry(f"User:{user.name}", "*", operation, permission))

    async def set_password(self, user: User, exists: bool) -> bool:
        """Sets or deletes the user's password. Returns False if the outcome is unknown."""
        rights = user.begin(user.rights[-1].bindings, exists, self.process.world.now)
        password = ScramPassword(user.password) if exists else None
        try:
            await self._admin.alter_user_credentials(user.name, {_MECHANISM: password})
        except KafkaError:
            return False
        return self._done(rights)

    async def add(self, user: User, binding: AclBinding) -> bool:
        """Adds an ACL. Returns False if the outcome is unknown."""
        rights = user.begin(user.rights[-1].bindings | {binding}, True, self.process.world.now)
        try:
            errors = await self._admin.create_acls([binding])
        except KafkaError:
            return False
        return errors == [None] and self._done(rights)

    async def delete(self, user: User, binding: AclBinding) -> bool:
        """Deletes an ACL. Returns False if the outcome is unknown."""
        rights = user.begin(user.rights[-1].bindings - {binding}, True, self.process.world.now)
        (kind, name, pattern_type), entry = binding
        try:
            await self._admin.delete_acls([AclFilter(kind, name, pattern_type, *entry)])
        except KafkaError:
            return False
        return self._done(rights)

    def _done(self, rights: _Rights) -> bool:
        rights.done_at = self.process.world.now
        return True


class Visitor:
    """Tries operations as the administrator's present user. `allowed` is called with each operation that a broker has
    allowed: the user, the operation, the topic, the broker's number, and the time of the request."""

    def __init__(
        self,
        process: Process,
        administrator: Administrator,
        hosts: list[BrokerHost],
        allowed: Callable[[User, AclOperation, str, int, float], None],
    ) -> None:
        self.process = process
        self.is_stopping = False
        self._administrator = administrator
        self._hosts = hosts
        self._allowed = allowed
        self._tried = self._refused = 0

    async def run(self) -> None:
        random = self.process.world.random
        while not self.is_stopping:
            users = self._administrator.users
            if users:
                try:
                    await self._visit(random.choice(users[-2:]), random.choice(self._hosts))
                except KafkaError:
                    pass  # The broker is down, or the user has no password.
            await asyncio.sleep(random.uniform(0.05, 0.3))
        self.process.world.tell(self.process.name, f"was refused {self._refused} of {self._tried} times")

    async def _visit(self, user: User, host: BrokerHost) -> None:
        random, world = self.process.world.random, self.process.world
        channel = await connect(self.process, user, host)
        until = world.now + (_KEPT_SECONDS if random.random() < 0.5 else random.uniform(0.1, 2.0))
        try:
            while world.now < until and not self.is_stopping and not channel.closed:
                operation = random.choice((AclOperation.READ, AclOperation.WRITE))
                topic, began = random.choice(TOPICS), world.now
                wait_ms = random.choice((0, 0, 500, 1500))
                code = await attempt(channel, operation, topic, wait_ms)
                self._tried += 1
                if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    self._refused += 1
                else:
                    self._allowed(user, operation, topic, host.number, began)
                await asyncio.sleep(random.choice((0.0, 0.02, 0.3)))
        finally:
            channel.close()


async def connect(process: Process, user: User, host: BrokerHost) -> Channel:
    """Returns a connection to a broker on which the user has logged in. Raises KafkaError if that fails."""
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": _MECHANISM,
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user.name}" password="{user.password}";',
    }
    return await open_channel(
        host.name,
        _SASL_PORT,
        process.name,
        ReadBuffer(),
        software_version="0",
        timeout_seconds=3.0,
        network=process.network,
        security=client_security(config.get, process.world.random.randbytes),
    )


async def attempt(channel: Channel, operation: AclOperation, topic: str, wait_ms: int) -> int:
    """Reads from partition 0 of a topic, for up to `wait_ms`, or writes to it. Returns the error code. A broker checks
    the rights first, so every code except TOPIC_AUTHORIZATION_FAILED means that the user may do it."""
    if operation is AclOperation.READ:
        fetch = FetchRequest(
            replica_id=-1,
            max_wait_ms=wait_ms,
            min_bytes=10_000_000,
            max_bytes=1000,
            session_epoch=-1,
            topics=[
                FetchRequestTopic(
                    topic=topic,
                    partitions=[FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
                )
            ],
        )
        read: FetchResponse = await channel.request(fetch, FetchResponse, timeout_seconds=5.0, at_most=_FETCH_VERSION)
        return read.error_code or read.responses[0].partitions[0].error_code
    produce = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            ProduceRequestTopic(
                name=topic,
                partition_data=[ProduceRequestPartition(index=0, records=encode_batch([(-1, None, b"v", ())]))],
            )
        ],
    )
    written: ProduceResponse = await channel.request(
        produce, ProduceResponse, timeout_seconds=5.0, at_most=_PRODUCE_VERSION
    )
    return written.responses[0].partition_responses[0].error_code


class AccessSimulation(Simulation):
    """The run of one seed with users whose rights change."""

    #: A tree that is lost or older has other ACLs, so no seed has disasters.
    FIRST_DISASTERS: ClassVar = (-1, -1)

    def __init__(self, seed: int, directory: Path, **others: Any) -> None:
        super().__init__(seed, directory, **others)
        self._tree_times = _TreeTimes()
        self._known = [_Known(host) for host in self.hosts]
        self._deeds: list[_Deed] = []
        self._administrators: list[Administrator] = []
        self._visitors: list[Visitor] = []

    def _host(self, number: int, brokers: int, others: Mapping[str, str]) -> BrokerHost:
        listeners = f"PLAINTEXT://broker-{number}:9092,SASL_PLAINTEXT://broker-{number}:{_SASL_PORT}"
        return super()._host(number, brokers, {**others, **_SETTINGS, "listeners": listeners})

    # --- programs ----------------------------------------------------------------------------------------------------

    def _begin_clients(self, settings: Mapping[str, str]) -> None:
        maker = Process(self.world, self._network, "admin")
        for topic in TOPICS:
            made = self._start(maker, create_topic(maker, self._bootstrap, topic, 1, len(self.hosts), settings))
            self._go_on(made.done, 60.0, f"the topic {topic} is not made")
        maker.end()
        for _ in range(_VISITORS):
            process = Process(self.world, self._network, self._name("operator"))
            administrator = Administrator(process, self._bootstrap)
            self._administrators.append(administrator)
            self._start(process, administrator.run())
            self._new_visitor(administrator)

    def _new_visitor(self, administrator: Administrator) -> None:
        process = Process(self.world, self._network, self._name("visitor"))
        visitor = Visitor(process, administrator, self.hosts, self._note)
        self._visitors.append(visitor)
        self._start(process, visitor.run())

    def _clients(self) -> list[Process]:
        return [visitor.process for visitor in self._visitors if not visitor.process.is_dead]

    def _member_gone(self) -> None:
        gone = self.world.random.choice([one for one in self._visitors if not one.process.is_dead])
        self.world.tell("fault", f"{gone.process.name} is killed")
        gone.process.end()
        self._new_visitor(gone._administrator)

    # --- invariants --------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if self._tree is not None and self._tree.tree is not None:
            self._tree_times.look(self.world.now, self._tree.tree.tree.last_zxid)
        for known in self._known:
            known.look(self.world.now)
        super()._watch()

    def _note(self, user: User, operation: AclOperation, topic: str, broker: int, sent_at: float) -> None:
        since = self._known_since(broker, sent_at)
        login_since = self._known_since(broker, sent_at - _SESSION_SECONDS)
        self._deeds.append(
            _Deed(user, operation, topic, self.hosts[broker].name, self.world.now, since, min(since, login_since))
        )

    def _known_since(self, broker: int, time: float) -> float:
        """Returns the earliest time whose rights a broker may use at this time: a second before the first transaction
        that it does not know."""
        known = self._known[broker].at(time)
        unknown_since = math.inf if known is None else self._tree_times.after(known)
        return min(time, unknown_since) - _KNOWN_WITHIN_SECONDS

    def _end_clients(self) -> None:
        for administrator in self._administrators:
            administrator.is_stopping = True
        for visitor in self._visitors:
            visitor.is_stopping = True
        self._go_on(
            lambda: all(task.done() for process, task in self._tasks if not process.is_dead),
            _REST_SECONDS,
            "an administrator or a visitor does not come to an end",
        )
        self._judge_tasks()
        process = Process(self.world, self._network, self._name("operator"))
        last = self._start(process, self._last_user(process))
        self._go_on(last.done, _REST_SECONDS, "the brokers do not agree on the rights of the last user")
        self._judge_tasks()

    async def _last_user(self, process: Process) -> None:
        """Gives a user a right, and takes the right away. After each change waits until every broker obeys."""
        administrator = Administrator(process, self._bootstrap)
        while True:
            user = administrator.new_user()
            entry = AclEntry(f"User:{user.name}", "*", AclOperation.WRITE, Permission.ALLOW)
            binding = AclBinding(ResourcePattern(ResourceType.TOPIC, TOPICS[0]), entry)
            if await administrator.set_password(user, True) and await administrator.add(user, binding):
                await self._until(process, user, ErrorCode.NONE)
                if await administrator.delete(user, binding):
                    await self._until(process, user, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    break
            await asyncio.sleep(0.5)
        await administrator._cluster.close()

    async def _until(self, process: Process, user: User, wanted: ErrorCode) -> None:
        """Waits until every broker refuses the user, or until every broker allows the user to write."""
        for host in self.hosts:
            while True:
                try:
                    channel = await connect(process, user, host)
                    code = await attempt(channel, AclOperation.WRITE, TOPICS[0], 0)
                    channel.close()
                    if (code == ErrorCode.TOPIC_AUTHORIZATION_FAILED) is (wanted != ErrorCode.NONE):
                        break
                except KafkaError:
                    pass  # The broker is down, or does not know the user yet.
                await asyncio.sleep(0.1)

    def _judge_clients(self) -> None:
        for deed in self._deeds:
            what = f"{deed.broker} let {deed.user.name} {deed.operation.name} {deed.topic} at {deed.at:.3f} s"
            if not deed.is_allowed():
                raise ViolationError(f"{what}, which no ACL has allowed since {deed.since:.3f} s")
            if not deed.user.may_have_had(deed.login_since, deed.at, _has_password):
                raise ViolationError(f"{what}, without a password since {deed.login_since:.3f} s")
        users = sum(len(administrator.users) for administrator in self._administrators)
        self.world.tell("simulation", f"{len(self._deeds)} operations of {users} users were rightly allowed")


def access_simulation(seed: int, *, tree_apart: bool = True, brokers: int = 3) -> AbstractContextManager[Simulation]:
    """Gives the `with` block a simulation of users whose rights change. The tree always has its own server program.
    The other arguments are those of `schedule.simulation`."""
    return simulation(
        seed,
        seconds=ACCESS_SECONDS,
        faults=ACCESS_FAULTS,
        tree_apart=True,
        brokers=brokers,
        kind=AccessSimulation,
    )
