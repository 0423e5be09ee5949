"""Handles each request of a ZooKeeper client in one of three ways: submits it to the tree as a write, leaves it in its
slot as a read until its turn comes, or answers it at once.

  CREATE .. CHECK, MULTI      submitted; answered when it is committed or refused
  EXISTS .. MULTI_READ        read (`reads`) when the requests before it have been answered
  SYNC                        answered when all earlier writes are committed
  AUTH, PING, WHO_AM_I        answered at once, in the order of the requests
  SASL                        answered at once; a login that fails ends the connection
  SET_WATCHES ..              handled as a read
  CLOSE_SESSION               submitted; the connection is closed after its answer
  any other type              UNIMPLEMENTED; the connection is also closed if ZooKeeper does not know the type
"""

from __future__ import annotations

from collections.abc import Callable

from jesenska.base.limits import ZOOKEEPER_IDENTITIES_MAX
from jesenska.metadata.acl import Identity, digest_identity
from jesenska.metadata.tree import Multi
from jesenska.metadata.tree_operations import (
    ConnectionLossError,
    MultiError,
    Operation,
    Result,
    SessionExpiredError,
    TreeCode,
    TreeError,
    UnimplementedError,
)
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.messages import (
    MULTI_READ_TYPES,
    MULTI_TYPES,
    REQUESTS,
    OpCode,
    PathResponse,
    Reader,
    SaslToken,
    SetWatches,
    SetWatches2,
    SubRequest,
    SubResponse,
    WatchesRequest,
    WhoAmIResponse,
)
from jesenska.metadata.zookeeper.server.operations import code_of, operation_of, refused_multi, response_to
from jesenska.metadata.zookeeper.server.reads import Caller, Reads
from jesenska.metadata.zookeeper.server.serving import ServedConnection, Serving
from jesenska.metadata.zookeeper.server.slots import Slot
from jesenska.security.sasl import SaslError

_WRITES = frozenset({OpCode.CREATE, OpCode.CREATE2, OpCode.DELETE, OpCode.SET_DATA, OpCode.SET_ACL, OpCode.CHECK})
_READS = frozenset(
    {
        OpCode.EXISTS,
        OpCode.GET_DATA,
        OpCode.GET_ACL,
        OpCode.GET_CHILDREN,
        OpCode.GET_CHILDREN2,
        OpCode.GET_EPHEMERALS,
        OpCode.GET_ALL_CHILDREN_NUMBER,
    }
)
_KNOWN = frozenset({OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL, OpCode.RECONFIG, OpCode.ADD_WATCH})
#: The requests by which a client becomes known, with their numbers.
_LOGINS = (int(OpCode.AUTH), int(OpCode.SASL))
_KINDS = {int(kind): kind for kind in OpCode}

#: Encodes the results of a write as the body of its answer.
Encode = Callable[[tuple[Result, ...]], bytearray]


class Requests:
    """Handles the requests of one client."""

    __slots__ = ("_caller", "_exchange", "_reads", "_server", "last_kind")

    def __init__(self, server: Serving, caller: Caller) -> None:
        self._server = server
        self._caller = caller
        self._reads = Reads(server, caller)
        self._exchange = server.guard.exchange()
        #: The type of the newest request whose type is known; None before the first.
        self.last_kind: OpCode | None = None

    def take(self, number: int, reader: Reader, slot: Slot, client: ServedConnection) -> None:
        """Submits a write, or stores in the slot how the request is answered when its turn comes. Raises MessageError
        or TreeError if the request is not valid."""
        server = self._server
        if not self._caller.is_admitted and number not in _LOGINS:
            slot.answer, slot.zxid, slot.closes = TreeCode.SESSION_CLOSED_REQUIRE_SASL_AUTH, 0, True
            client.login_failed("it has sent a request before its login")
            return
        kind = _KINDS.get(number)
        if kind is None:
            slot.answer, slot.zxid, slot.closes = TreeCode.UNIMPLEMENTED, -1, True
            return
        self.last_kind = kind
        if kind in _READS:
            body = messages.read(REQUESTS[kind], reader)
            slot.read = lambda: self._reads.read(kind, body, client)
        elif kind in _WRITES:
            operation = operation_of(kind, messages.read(REQUESTS[kind], reader), self._caller.identities)
            self._submit(
                slot, client, (operation,), lambda results: messages.write(bytearray(), response_to(kind, results[0]))
            )
        elif kind is OpCode.MULTI:
            operations = messages.read_multi(reader, MULTI_TYPES | {OpCode.CREATE_CONTAINER})
            self._multi(slot, client, operations)
        elif kind is OpCode.MULTI_READ:
            reads = messages.read_multi(reader, MULTI_READ_TYPES)
            slot.read = lambda: messages.write_multi_response(
                bytearray(), [self._reads.read_one(one, client) for one in reads]
            )
        elif kind is OpCode.PING:
            slot.answer = b""
        elif kind is OpCode.SYNC:
            path = messages.read(REQUESTS[kind], reader)
            server.tree.wait(
                lambda _, error: client.done(
                    slot, messages.write(bytearray(), PathResponse(*path)) if error is None else code_of(error)
                )
            )
        else:
            self._take_of_session(kind, reader, slot, client)

    def _take_of_session(self, kind: OpCode, reader: Reader, slot: Slot, client: ServedConnection) -> None:
        """Handles a request about the session (identities, watches, its end), or refuses a request that is not
        supported."""
        if kind is OpCode.AUTH:
            self._authenticate(slot, client, *messages.read(messages.AuthPacket, reader))
        elif kind is OpCode.SASL:
            self._log_in(slot, client, messages.read(SaslToken, reader).token or b"")
        elif kind in (OpCode.SET_WATCHES, OpCode.SET_WATCHES2):
            body = messages.read(REQUESTS[kind], reader)
            if isinstance(body, SetWatches2):
                if body.persistent_watches or body.persistent_recursive_watches:
                    raise UnimplementedError("/", "persistent watches")
                body = SetWatches(*body[:4])
            assert isinstance(body, SetWatches)
            watches = body
            slot.read = lambda: self._reads.set_watches(watches, client)
        elif kind in (OpCode.CHECK_WATCHES, OpCode.REMOVE_WATCHES):
            meant = messages.read(WatchesRequest, reader)
            slot.read = lambda: self._reads.own_watches(meant, client, removes=kind is OpCode.REMOVE_WATCHES)
        elif kind is OpCode.WHO_AM_I:
            # For a digest identity only the user name is shown: the rest is a hash of the password.
            named = sorted(
                (identity.scheme, identity.id.partition(":")[0] if identity.scheme == "digest" else identity.id)
                for identity in self._caller.identities
            )
            slot.answer = messages.write(bytearray(), WhoAmIResponse(tuple(named)))
        elif kind is OpCode.CLOSE_SESSION:
            client.is_closing_session = True
            slot.closes = True
            self._server.close_session(
                self._caller.session_id, lambda error: client.done(slot, b"" if error is None else code_of(error))
            )
        elif kind in _KNOWN:
            raise UnimplementedError("/", kind.name)
        else:
            slot.answer, slot.zxid, slot.closes = TreeCode.UNIMPLEMENTED, -1, True

    def _submit(
        self,
        slot: Slot,
        client: ServedConnection,
        operations: tuple[Operation, ...],
        encode: Callable[[tuple[Result, ...]], bytearray],
        *,
        is_multi: bool = False,
    ) -> None:
        def done(results: tuple[Result, ...], error: Exception | None) -> None:
            if error is None:
                client.done(slot, encode(results))
            elif is_multi and not isinstance(error, ConnectionLossError | SessionExpiredError):
                client.done(slot, refused_multi(error, len(operations)))
            else:
                client.done(slot, code_of(error))

        self._server.tree.submit(Multi(self._caller.session_id, operations, self._caller.identities), done)

    def _multi(self, slot: Slot, client: ServedConnection, requests: tuple[SubRequest, ...]) -> None:
        operations: list[Operation] = []
        for index, (kind, body) in enumerate(requests):
            try:
                operations.append(operation_of(kind, body, self._caller.identities))
            except UnimplementedError:
                raise
            except TreeError as error:
                slot.answer = refused_multi(MultiError(index, len(requests), error), len(requests))
                return
        if not operations:
            slot.answer = messages.write_multi_response(bytearray(), ())
            return

        def encode(results: tuple[Result, ...]) -> bytearray:
            answers = [
                SubResponse(kind, 0, response_to(kind, result))
                for (kind, _), result in zip(requests, results, strict=True)
            ]
            return messages.write_multi_response(bytearray(), answers)

        self._submit(slot, client, tuple(operations), encode, is_multi=True)

    def _log_in(self, slot: Slot, client: ServedConnection, token: bytes) -> None:
        """Takes the next message of a client's login."""
        slot.zxid = 0
        if self._exchange is None:
            slot.answer = messages.write(bytearray(), SaslToken(None))
            return
        try:
            answer = self._exchange.step(token)
        except SaslError as error:
            client.login_failed(str(error))
            slot.answer = (
                TreeCode.SESSION_CLOSED_REQUIRE_SASL_AUTH if self._server.guard.required else TreeCode.AUTH_FAILED
            )
            slot.after_error = bytes(messages.write(bytearray(), SaslToken(None)))
            slot.closes = True
            return
        slot.answer = messages.write(bytearray(), SaslToken(answer))
        if self._exchange.user is not None:
            self._known_as(client, Identity("sasl", self._exchange.user))

    def _known_as(self, client: ServedConnection, identity: Identity) -> None:
        caller, guard = self._caller, self._server.guard
        caller.identities = guard.completed(caller.identities | {identity})
        if not caller.is_admitted and guard.admits(caller.identities):
            caller.is_admitted = True
            client.admitted()

    def _authenticate(self, slot: Slot, client: ServedConnection, _: int, scheme: str, auth: bytes) -> None:
        slot.answer = b""
        if scheme == "digest" and len(self._caller.identities) < ZOOKEEPER_IDENTITIES_MAX:
            self._known_as(client, digest_identity(auth))
        elif scheme != "ip":
            slot.answer, slot.closes = TreeCode.AUTH_FAILED, True
