"""Opens connections to other brokers of the cluster, on their listener for brokers (inter.broker.listener.name)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jesenska import __version__
from jesenska.base.errors import BrokerNotAvailableError, NetworkException
from jesenska.broker.shared_parts import SharedParts
from jesenska.metadata.nodes import BrokerRegistration
from jesenska.net.channel import Channel, open_channel
from jesenska.net.connection import ReadBuffer

if TYPE_CHECKING:
    from jesenska.security.client_security import ClientSecurity


class Peers:
    """Opens connections of this broker to other brokers. If `security` is None, the connections use neither TLS nor
    SASL."""

    def __init__(self, core: SharedParts, listener_name: str, security: ClientSecurity | None) -> None:
        self._core = core
        self._security = security
        self.listener_name = listener_name
        self._buffer = ReadBuffer()
        self._timeout_seconds = core.config.integer("controller.socket.timeout.ms") / 1000

    async def connect(self, broker_id: int) -> Channel:
        """Opens a connection to another broker. Raises BrokerNotAvailableError if the metadata cache has no such
        broker, and NetworkException if the broker cannot be reached."""
        node = self._core.view.brokers.get(broker_id)
        endpoint = None if node is None else node.endpoints.get(self.listener_name)
        if endpoint is None:
            raise BrokerNotAvailableError(f"Broker {broker_id} is not up, or has no listener {self.listener_name}.")
        return await self._open(*endpoint)

    async def connect_to(self, node: BrokerRegistration) -> Channel:
        """Opens a connection to the broker with this registration."""
        for item in node.endpoints:
            if item.name == self.listener_name:
                return await self._open(item.host, item.port)
        raise BrokerNotAvailableError(f"The broker has no listener {self.listener_name}.")

    async def _open(self, host: str, port: int) -> Channel:
        try:
            return await open_channel(
                host,
                port,
                f"broker-{self._core.broker_id}",
                self._buffer,
                software_version=__version__,
                timeout_seconds=self._timeout_seconds,
                network=self._core.machine.network,
                security=self._security,
            )
        except NetworkException as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or cause.strerror is None:
                raise
            # The message of the client library names an option of a command-line tool, which does not apply here.
            raise NetworkException(f"{host}:{port}: {cause.strerror}") from cause
