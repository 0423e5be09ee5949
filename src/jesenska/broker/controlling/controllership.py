"""Starts a controller when this broker is elected (`candidacy`), with a copy of the metadata tree (ZooKeeper's nodes).
Ends it when the broker is no longer the elected controller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from jesenska.base.errors import JesenskaError, NotControllerError
from jesenska.broker.controlling.candidacy import Candidacy
from jesenska.broker.controlling.controller_runtime import ControllerRuntime
from jesenska.broker.peers import Peers
from jesenska.broker.replicas.order_receiver import OrderReceiver
from jesenska.broker.replicas.replica_manager import ReplicaManager
from jesenska.broker.shared_parts import SharedParts
from jesenska.broker.tree.tree_home import TreeHome
from jesenska.config.layers import BrokerConfig
from jesenska.controller.context import ControllerContext
from jesenska.controller.events import EVERYTHING, Look, Started
from jesenska.controller.machine import Controller
from jesenska.metadata import paths
from jesenska.metadata.nodes import NodeFormatError
from jesenska.metadata.patience import until_reached
from jesenska.metadata.tree_operations import MultiError, TreeError

logger = logging.getLogger(__name__)


class Controllership:
    """Starts and ends the controller of this broker, on the running event loop. `config` has the settings of the
    broker's files. `facts` reads the metadata tree."""

    def __init__(
        self,
        core: SharedParts,
        home: TreeHome,
        config: BrokerConfig,
        facts: Callable[[], Awaitable[ControllerContext]],
        replicas: ReplicaManager,
        receiver: OrderReceiver,
        peers: Peers,
    ) -> None:
        self._core = core
        self._home = home
        self._config = config
        self._facts = facts
        self._replicas = replicas
        self._receiver = receiver
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self._until_reached = partial(until_reached, home.store, home.patience_seconds)
        self.candidacy = Candidacy(home.store, core.broker_id, core.clock, self)
        self._runtime: ControllerRuntime | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        #: The broker id of the controller, as last seen in the tree. It is -1 if no controller is known.
        self.controller_id = -1
        #: Set as long as a controller is known.
        self.is_settled = asyncio.Event()

    @property
    def runtime(self) -> ControllerRuntime:
        """Returns the runtime of the controller. Raises NotControllerError if this broker is not the controller."""
        if self._runtime is None:
            raise NotControllerError
        return self._runtime

    @property
    def is_controller(self) -> bool:
        return self._runtime is not None

    def look(self, at: str) -> None:
        """Tells the controller that the metadata tree may have changed at the path `at`. Does nothing if this broker
        is not controller."""
        if self._runtime is not None:
            self._runtime.look(at)

    # --- calls of `candidacy` ----------------------------------------------------------------------------------------

    def begin(self, epoch: int, epoch_version: int) -> None:
        logger.info("broker %d is controller, of epoch %d", self._core.broker_id, epoch)
        self._beginning = self._loop.create_task(self._begin(epoch, epoch_version))

    async def _begin(self, epoch: int, epoch_version: int) -> None:
        runtime: ControllerRuntime | None = None
        try:
            facts = await self._until_reached(self._facts)
            # The list of brokers is left empty: the controller reads it with the look at BROKER_IDS below.
            facts.brokers.clear()
            facts.controller_epoch, facts.controller_epoch_version = epoch, epoch_version
            core = self._core
            controller = Controller(
                core.broker_id, facts, self._config, core.machine.new_uuid, core.machine.random.randrange, several=True
            )
            runtime = ControllerRuntime(
                core,
                self._home.store,
                controller,
                self._replicas,
                self._receiver,
                self._peers,
                self._home.change_max_bytes,
                lambda: self.candidacy.fenced(epoch),
            )
            await self._until_reached(partial(runtime.ask, Started))
        except asyncio.CancelledError:
            if runtime is not None:
                self._close(runtime)
            raise
        except Exception as error:
            known = isinstance(error, TreeError | MultiError | NodeFormatError | JesenskaError)
            logger.error(
                "broker %d cannot be controller now: %s", self._core.broker_id, error, exc_info=None if known else error
            )
            if runtime is not None:
                self._close(runtime)
            self.candidacy.began(epoch, is_done=False)
            return
        self._runtime = runtime
        self.controller_id = self._core.broker_id
        self.is_settled.set()
        # Brokers first, because the leaders are elected among the brokers that the controller knows.
        runtime.submit(Look(paths.BROKER_IDS))
        if self._home.is_shared:
            runtime.submit(Look(EVERYTHING))
        else:
            for path in (paths.ISR_CHANGES, paths.LOG_DIR_EVENTS, paths.CONFIG_CHANGES, paths.DELETE_TOPICS):
                runtime.submit(Look(path))
        self.candidacy.began(epoch, is_done=True)

    def end(self, epoch: int) -> None:
        logger.info("broker %d is not controller of epoch %d any more", self._core.broker_id, epoch)
        if self._beginning is not None and not self._beginning.done():
            self._beginning.cancel()
        if self._runtime is not None:
            self._close(self._runtime)
            self._runtime = None
        self.controller_id = -1
        self.is_settled.clear()

    def follow(self, broker_id: int) -> None:
        self.controller_id = broker_id
        self.is_settled.set()

    # --- the end -----------------------------------------------------------------------------------------------------

    def stop_watching(self) -> None:
        """Makes the controller ignore changes of the metadata tree by other brokers and tools from now on. Requests
        are still handled."""
        if self._runtime is not None:
            self._runtime.stop_watching()

    def _close(self, runtime: ControllerRuntime) -> None:
        for task in runtime.close():
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Ends the controller and this broker's part in elections. If this broker is controller, its node /controller
        is deleted when the session ends."""
        await self.candidacy.close()
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.gather(self._beginning, return_exceptions=True)
        if self._runtime is not None:
            self._close(self._runtime)
            self._runtime = None
        await asyncio.gather(*self._ending, return_exceptions=True)
