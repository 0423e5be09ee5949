"""The two brokers that are asked: connections, answers, and what Kafka's controller does a moment after its answer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from jesenska.security.sasl import plain_message
from jesenska.wire.codec import MalformedMessageError, decode
from jesenska.wire.headers import read_response_head
from jesenska.wire.language import Message
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from jesenska.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from jesenska.wire.registry import APIS
from tests.conformance.differential import world as worlds
from tests.conformance.differential.requests import Requests, frame
from tests.raw_connection import ClosedByBrokerError, RawConnection

#: How long an answer may take; a join or a sync that waits for others is not waited for.
_PATIENCE_SECONDS: Final = 2.0
_SHORT_PATIENCE_SECONDS: Final = 0.6
_WAITS_FOR_OTHERS: Final = frozenset((11, 14))
_PRODUCE, _API_VERSIONS, _ALTER_CONFIGS = 0, 18, 33
_WORLD_SECONDS: Final = 20.0

#: DescribeQuorum version 0 of the metadata's partition; the high watermark stands at a fixed place of the answer.
_QUORUM_FRAME: Final = b"\0\x37\0\0\0\0\0\x01\xff\xff\0\x02\x13__cluster_metadata\x02\0\0\0\0\0\0\0"
_QUORUM_HIGH_WATERMARK_AT: Final = 42


class Silence(Enum):
    """What a broker may do in place of an answer."""

    CLOSED = "the connection was closed"
    WAITS = "no answer yet"
    NOTHING = "no answer, and the connection goes on"


Answer = Message | Silence


@dataclass
class Side:
    """A broker. `release` is None for ours. With `user` the requests come from a user that has logged in with its name
    as the password, at the listener `user_bootstrap`; worlds are built by the super user of the other listener."""

    bootstrap: str
    release: str | None
    #: Keys with the versions that it announces.
    announced: dict[int, range] = field(default_factory=dict)
    world: worlds.World = field(default_factory=lambda: worlds.World("", []))
    requests: Requests | None = None
    user: str = ""
    user_bootstrap: str = ""
    _administration: RawConnection | None = None
    _connection: RawConnection | None = None
    _count: int = 0

    def __post_init__(self) -> None:
        with RawConnection(self.bootstrap, _WORLD_SECONDS) as connection:
            answer = connection.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        self.announced = {item.api_key: range(item.min_version, item.max_version + 1) for item in answer.api_keys}

    def renew(self, prefix: str) -> None:
        """A new world in place of the old one."""
        with RawConnection(self.bootstrap, _WORLD_SECONDS) as connection:
            if self.world.topics:
                worlds.forget(connection, self.world)
            self.world = worlds.build(connection, prefix)
        self.requests = Requests(self.world)
        self.settle()

    def send(self, request: Message, version: int) -> None:
        self._count += 1
        if self._connection is None:
            self._connection = self._opened()
        may_be_silent = (
            request.api_key in _WAITS_FOR_OTHERS
            or _wants_no_answer(request)
            or (self.release is not None and _is_never_answered(request))
        )
        self._connection.socket.settimeout(_SHORT_PATIENCE_SECONDS if may_be_silent else _PATIENCE_SECONDS)
        self._connection.send_frame(frame(request, version, self._count))
        if _wants_no_answer(request):  # what comes after it is answered first
            self._connection.send_frame(frame(ApiVersionsRequest(), 0, -1))

    def receive(self, request: Message, version: int) -> Answer:
        assert self._connection is not None
        try:
            data = self._connection.receive_frame()
        except ClosedByBrokerError:
            self.close()
            return Silence.CLOSED
        except TimeoutError:
            self.close()
            return Silence.WAITS
        api = APIS[request.api_key]
        if _wants_no_answer(request):
            return Silence.NOTHING
        view = memoryview(data)
        correlation_id, position = read_response_head(view, api.response_header_version(version))
        if correlation_id != self._count:
            raise MalformedMessageError(f"an answer to request {correlation_id} where {self._count} was sent")
        answer: Message = decode(api.response, version, view[position:])
        return answer

    def _opened(self) -> RawConnection:
        """A connection of the client whose requests are compared."""
        if not self.user:
            return RawConnection(self.bootstrap)
        connection = RawConnection(self.user_bootstrap)
        connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
        message = memoryview(plain_message(self.user, self.user))
        answer = connection.ask(SaslAuthenticateRequest(auth_bytes=message), 1, SaslAuthenticateResponse)
        assert answer.error_code == 0, answer.error_message
        return connection

    def administration(self) -> RawConnection:
        """The connection of the super user."""
        if self._administration is None:
            self._administration = RawConnection(self.bootstrap, _WORLD_SECONDS)
        return self._administration

    def close(self) -> None:
        if self._connection is not None:
            self._connection.socket.close()
            self._connection = None

    def end(self) -> None:
        """Closes all connections."""
        self.close()
        if self._administration is not None:
            self._administration.socket.close()

    def settle(self) -> None:
        """Returns when the broker knows what the controller has decided: in KRaft a moment after the answer."""
        if self.release is None:
            return
        if self.release.startswith("3"):
            time.sleep(0.05)  # ZooKeeper mode tells its brokers in the background, and nobody when they know
            return
        with RawConnection(self.bootstrap, _WORLD_SECONDS) as connection:
            connection.send_frame(_QUORUM_FRAME)
            answer = connection.receive_frame()
            decided = int.from_bytes(answer[_QUORUM_HIGH_WATERMARK_AT : _QUORUM_HIGH_WATERMARK_AT + 8], "big")
            asked = ApiVersionsRequest(client_software_name="differential", client_software_version="1")
            deadline = time.monotonic() + _WORLD_SECONDS
            while connection.ask(asked, 4, ApiVersionsResponse).finalized_features_epoch < decided - 1:
                assert time.monotonic() < deadline, "the broker does not catch up with its controller"


def _is_never_answered(request: Message) -> bool:
    """Kafka gives an AlterConfigs that names a resource twice no answer."""
    if request.api_key != _ALTER_CONFIGS:
        return False
    named = [(item.resource_type, item.resource_name) for item in getattr(request, "resources", ())]
    return len(set(named)) < len(named)


def _wants_no_answer(request: Message) -> bool:
    return request.api_key == _PRODUCE and getattr(request, "acks", 1) == 0
