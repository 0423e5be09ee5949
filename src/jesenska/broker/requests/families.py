"""The parts of the broker that handlers use, grouped by families of requests. A handler gets the parts of its family
as its first argument, so that it can be tested without a broker.

    ProduceFamily        Produce
    FetchFamily          Fetch, of consumers and of followers
    LogFamily            requests about single logs and log directories
    ClusterFamily        descriptions of the cluster, its brokers and their settings
    GroupFamily          groups and their offsets
    TransactionFamily    producer ids and transactions
    TopicFamily          creation, change and deletion of topics; elections of leaders; moves of replicas
    PeerFamily           requests between brokers and controllers
    SecurityFamily       users with their credentials, rights and quotas

The broker creates these values at its start (`broker.server`), and does not change them later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from jesenska.base.errors import ClusterAuthorizationFailedError
from jesenska.controller.events import AlterClientSettings
from jesenska.quotas.replication_throttle import NO_THROTTLE, Throttle

if TYPE_CHECKING:
    import asyncio

    from jesenska.base.clock import Clock
    from jesenska.broker.config_in_force import ConfigInForce
    from jesenska.broker.controlling.controller_client import ControllerClient
    from jesenska.broker.controlling.features import Features
    from jesenska.broker.coordinators.groups import Groups
    from jesenska.broker.coordinators.transaction_markers import MarkerWriter
    from jesenska.broker.coordinators.transaction_verification import TransactionVerification
    from jesenska.broker.coordinators.transactions import Transactions
    from jesenska.broker.fetching.fetch_sessions import FetchSessions
    from jesenska.broker.metadata_cache import MetadataCache
    from jesenska.broker.pool import Pool
    from jesenska.broker.replicas.order_receiver import OrderReceiver
    from jesenska.broker.settings.acls_runtime import AclsRuntime
    from jesenska.broker.settings.settings_runtime import SettingsRuntime
    from jesenska.broker.settings.tokens_runtime import TokensRuntime
    from jesenska.broker.waiting import WaitingRoom
    from jesenska.log.log_directories import LogDirectories
    from jesenska.metadata.producer_ids import ProducerIds
    from jesenska.metadata.store import Store
    from jesenska.replication.leader.isr_changes import IsrChanges
    from jesenska.replication.partition import Partition

#: The parts for each family of handlers, by the family's class.
Families = Mapping[type, object]


class ProduceFamily(NamedTuple):
    clock: Clock
    loop: asyncio.AbstractEventLoop
    pool: Pool
    verification: TransactionVerification
    view: MetadataCache
    waiting: WaitingRoom


class FetchRules(NamedTuple):
    """Rules for Fetch. `max_bytes` is the size limit of one answer. `by_rack` is True if the leader sends consumers to
    followers in their rack. `throttle` limits the bytes per second that the leader sends to followers."""

    max_bytes: int
    by_rack: bool
    throttle: Throttle = NO_THROTTLE


class FetchFamily(NamedTuple):
    """The parts of the broker for Fetch. `joining` has the partitions whose ISR a follower may join with its next
    fetch."""

    clock: Clock
    isr_changes: IsrChanges
    joining: set[Partition]
    pool: Pool
    rules: FetchRules
    sessions: FetchSessions
    view: MetadataCache
    waiting: WaitingRoom


class LogFamily(NamedTuple):
    clock: Clock
    directories: LogDirectories
    pool: Pool
    view: MetadataCache


class ClusterFamily(NamedTuple):
    broker_id: int
    clock: Clock
    features: Features
    in_force: ConfigInForce
    controller: ControllerClient
    view: MetadataCache


class GroupFamily(NamedTuple):
    clock: Clock
    groups: Groups
    in_force: ConfigInForce
    store: Store
    transactions: Transactions
    verification: TransactionVerification
    view: MetadataCache


class TransactionFamily(NamedTuple):
    clock: Clock
    features: Features
    groups: Groups
    in_force: ConfigInForce
    producer_ids: ProducerIds
    transactions: Transactions
    view: MetadataCache


class TopicFamily(NamedTuple):
    broker_id: int
    clock: Clock
    controller: ControllerClient
    view: MetadataCache


class PeerFamily(NamedTuple):
    """The parts of the broker for requests between brokers. `may_have_peers` is True if other brokers may use the same
    metadata tree; otherwise these requests are refused."""

    clock: Clock
    marker_writer: MarkerWriter
    may_have_peers: bool
    orders: OrderReceiver
    producer_ids: ProducerIds
    controller: ControllerClient

    def require_peers(self) -> None:
        """Raises ClusterAuthorizationFailedError if no other broker can use this broker's metadata tree: the sender of
        the request is then not a broker of the cluster."""
        if not self.may_have_peers:
            raise ClusterAuthorizationFailedError(
                "Only other brokers of the cluster may ask for this, and this broker is the only one: its "
                "metadata tree is not shared."
            )


class SecurityFamily(NamedTuple):
    """The parts of the broker for users, their credentials, rights and quotas. `acls` is None on a broker without an
    authorizer, `tokens` on a broker without delegation tokens."""

    controller: ControllerClient
    settings: SettingsRuntime
    acls: AclsRuntime | None = None
    tokens: TokensRuntime | None = None

    async def alter_client(self, entity: str, changes: Mapping[str, str | None]) -> None:
        """Changes settings of a user, a client id or an IP address in the metadata tree; the value None removes a
        setting. `entity` has the form of `AlterClientSettings`."""
        await self.settings.ask(lambda token: AlterClientSettings(token, entity, changes))
