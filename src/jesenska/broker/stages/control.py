"""The fifth stage of a start: creates the receiver of the controller's requests, the controller that runs if this
broker is elected, and the client through which handlers use the controller. Other brokers do not see this broker
before `registration.join`."""

from __future__ import annotations

from dataclasses import dataclass

from jesenska.broker.controlling.controller_client import ControllerClient
from jesenska.broker.controlling.controllership import Controllership
from jesenska.broker.controlling.features import Features
from jesenska.broker.controlling.registration import Registration
from jesenska.broker.replicas.order_receiver import OrderReceiver
from jesenska.broker.shared_parts import SharedParts
from jesenska.broker.stages.replication import Replication
from jesenska.broker.stages.tree import TreePlace
from jesenska.config.layers import BrokerConfig
from jesenska.metadata.nodes import BrokerRegistration
from jesenska.metadata.producer_ids import ProducerIds
from jesenska.replication.leader.isr_changes import IsrChanges


@dataclass(frozen=True, slots=True)
class Control:
    orders: OrderReceiver
    controllership: Controllership
    controller: ControllerClient
    features: Features
    producer_ids: ProducerIds
    isr_changes: IsrChanges
    registration: Registration


def control(core: SharedParts, place: TreePlace, replication: Replication, files_config: BrokerConfig) -> Control:
    """Creates the parts of this stage. `files_config` has the settings of the broker's configuration files, which a
    new controller uses as its first settings."""
    home, store = place.home, place.store
    orders = OrderReceiver(replication.replicas)
    controllership = Controllership(
        core, home, files_config, home.facts, replication.replicas, orders, replication.peers
    )
    node = BrokerRegistration(
        place.endpoints, core.clock.now_ms(), core.config.string("broker.rack"), crashed=replication.is_crashed
    )
    begin = None if replication.starts is None else replication.starts.begin
    return Control(
        orders,
        controllership,
        ControllerClient(core, controllership, replication.settings, replication.peers),
        Features(store),
        ProducerIds(store, core.broker_id),
        IsrChanges(store, core.broker_id, lambda: orders.fence.controller_epoch, core.isr_syncs),
        Registration(
            store, core.broker_id, node, core.clock, home.session_timeout_ms, controllership.candidacy, orders, begin
        ),
    )
