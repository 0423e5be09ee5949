"""The authorizer of a broker, and the rights of one user at one host.

A rule is the check of one kind of request. It is called with the user's rights and the request, before the request is
handled. It returns one of these:

  None        the request may be handled unchanged
  a Message   the request is refused, and this is the answer
  an Amend    the refused parts were removed from the request. The Amend is a function that adds their errors to the
              answer, and removes from the answer what the user may not see

A refusal is logged by the logger `kafka.authorizer.logger`, once per minute for each user, operation and resource. If
a resource is only left out of an answer, nothing is logged."""

from __future__ import annotations

import logging
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Any, Final, TypeVar

from jesenska.base.errors import ErrorCode
from jesenska.security.acls import CLUSTER_NAME, AclOperation, Acls, ResourceType
from jesenska.security.principal import Principal
from jesenska.wire.language import Message, Struct
from jesenska.wire.registry import APIS

if TYPE_CHECKING:
    from jesenska.broker.metadata_cache import MetadataCache

logger = logging.getLogger("kafka.authorizer.logger")

T = TypeVar("T")

#: The number of topics that are remembered for one connection and operation.
_REMEMBERED_MAX: Final = 1000

Amend = Callable[[Any], None]
Verdict = Message | Amend | None

TOPIC: Final = ResourceType.TOPIC
GROUP: Final = ResourceType.GROUP
CLUSTER: Final = ResourceType.CLUSTER
TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID


class Access:
    """The rights of one user at one host. Each call uses the ACLs that are current at the time of the call. `request`
    is the API key of the request that is being handled."""

    __slots__ = (
        "_acls",
        "_authorizer",
        "_readable",
        "_remembered_version",
        "_writable",
        "host",
        "principal",
        "request",
    )

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str) -> None:
        self._authorizer = authorizer
        self._acls = authorizer.acls
        #: The topics that the user may read, and the topics that the user may write to, by the ACLs of version
        #: `_remembered_version`.
        self._readable: set[str] = set()
        self._writable: set[str] = set()
        self._remembered_version = -1
        self.principal = str(principal)
        self.host = host_text(host)
        self.request = -1

    @property
    def view(self) -> MetadataCache:
        return self._authorizer.view

    @property
    def creates_topics(self) -> bool:
        """Returns True if topics are created automatically (auto.create.topics.enable)."""
        return self._authorizer.creates_topics()

    @property
    def rules_version(self) -> int:
        """Returns the version number of the ACLs, which grows with each change."""
        return self._acls.version

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """Returns the name of a topic, or None if its id is unknown."""
        topic = self.view.by_id.get(topic_id)
        return None if topic is None else topic.name

    def allows(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Returns True if the user may do this operation on the resource. A refusal is logged."""
        allowed = self._acls.allows(self.principal, self.host, operation, kind, name)
        if not allowed:
            self._log(operation, kind, name)
        return allowed

    def may(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Returns True if the user may do this operation on the resource. A refusal is not logged."""
        return self._acls.allows(self.principal, self.host, operation, kind, name)

    def may_read(self, topic: str) -> bool:
        """Returns True if the user may read a topic. A refusal is logged."""
        return self._remembered(self._readable, AclOperation.READ, topic)

    def may_write(self, topic: str) -> bool:
        """Returns True if the user may write to a topic. A refusal is logged."""
        return self._remembered(self._writable, AclOperation.WRITE, topic)

    def _remembered(self, allowed: set[str], operation: AclOperation, topic: str) -> bool:
        """Returns True if the user may do this operation on a topic. The allowed topics are remembered until the ACLs
        change, because each request of a producer or consumer asks for the same topics again."""
        version = self._acls.version
        if version != self._remembered_version:
            self._readable.clear()
            self._writable.clear()
            self._remembered_version = version
        if topic in allowed:
            return True
        if not self.allows(operation, TOPIC, topic):
            return False
        if len(allowed) >= _REMEMBERED_MAX:
            allowed.clear()
        allowed.add(topic)
        return True

    def cluster(self, operation: AclOperation) -> bool:
        """Returns True if the user may do this operation on the cluster. A refusal is logged."""
        return self.allows(operation, CLUSTER, CLUSTER_NAME)

    def may_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Returns True if the user may do this operation on at least one resource of the type."""
        return self._acls.allows_any(self.principal, self.host, operation, kind)

    def operations(self, kind: ResourceType, name: str) -> int:
        """Returns the operations that the user may do on a resource, as the bit set of KIP-430."""
        return self._acls.operations(self.principal, self.host, kind, name)

    def split(
        self, operation: AclOperation, kind: ResourceType, items: Iterable[T], name_of: Callable[[T], str | None]
    ) -> tuple[list[T], list[T]]:
        """Returns the allowed items and the refused items. An item without a name (a topic with an unknown id) is
        allowed."""
        kept: list[T] = []
        refused: list[T] = []
        for item in items:
            name = name_of(item)
            (kept if name is None or self.allows(operation, kind, name) else refused).append(item)
        return kept, refused

    def _log(self, operation: AclOperation, kind: ResourceType, name: str) -> None:
        api = APIS.get(self.request)
        logger.info(
            "Principal = %s is Denied operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s",
            self.principal,
            operation.name,
            self.host,
            kind.name,
            name,
            api.name if api is not None else self.request,
            extra={"once_a_minute": (self.principal, operation, kind, name)},
        )


Rule = Callable[[Access, Any, int], Verdict]


#: The API keys whose refusals have a message, as in Kafka; the messages are in `_MESSAGES`.
_KEYS_WITH_MESSAGES: Final = frozenset((20, 29, 30, 31, 32, 33, 43, 44, 45, 46, 49, 51, 61))
_MESSAGES: Final[Mapping[int, str]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}


def _with_messages(verdict: Message | Amend) -> Message | Amend:
    """Returns the verdict with a message for each refusal in the answer."""
    if isinstance(verdict, Message):
        _add_messages(verdict)
        return verdict

    def amend(response: Any) -> None:
        verdict(response)
        _add_messages(response)

    return amend


def _add_messages(value: Any) -> None:
    """Sets the message of each refusal in an answer that has an error code and no message."""
    if isinstance(value, list):
        for item in value:
            _add_messages(item)
    elif isinstance(value, Struct):
        names = {field.name for field in value.fields}
        if "error_message" in names and not value.error_message and value.error_code in _MESSAGES:  # type: ignore[attr-defined]
            value.error_message = _MESSAGES[value.error_code]  # type: ignore[attr-defined]
        for name in names:
            _add_messages(getattr(value, name))


def merged_refusals(topics: Iterable[Any], partitions: str, index: str) -> list[Any]:
    """Returns the answers for refused topics, each topic and each partition once. Topics without partitions are left
    out. `partitions` names the field of a topic's partitions, `index` the field of a partition's number."""
    found: dict[tuple[Any, Any], tuple[Any, dict[int, Any]]] = {}
    for topic in topics:
        name = getattr(topic, "name", None) or getattr(topic, "topic", "")
        _, known = found.setdefault((name, getattr(topic, "topic_id", None)), (topic, {}))
        known.update((getattr(part, index), part) for part in getattr(topic, partitions))
    for topic, known in found.values():
        setattr(topic, partitions, list(known.values()))
    return [topic for topic, known in found.values() if known]


def added(field: str, refusals: Sequence[Any], *, first: bool = False) -> Amend:
    """Returns an Amend that adds the answers for refused items to a list of the response: at its end, or with `first`
    at its beginning."""

    def amend(response: Any) -> None:
        allowed = getattr(response, field)
        setattr(response, field, [*refusals, *allowed] if first else [*allowed, *refusals])

    return amend


class Authorizer:
    """The authorizer of one broker. `creates_topics` returns True if topics are created automatically. `rules` has the
    check for each API key (`authorization.table`)."""

    def __init__(
        self, acls: Acls, view: MetadataCache, creates_topics: Callable[[], bool], rules: Mapping[int, Rule]
    ) -> None:
        self.acls = acls
        self.view = view
        self.creates_topics = creates_topics
        self._rules = rules

    def access_for(self, principal: Principal, host: str) -> Access:
        return Access(self, principal, host)

    def check(self, access: Access, key: int, version: int, request: Message) -> Verdict:
        """Checks a request. Returns None (allowed), a Message (refused) or an Amend (partly refused); see the top of
        this file. Raises KafkaError if the connection must be closed."""
        access.request = key
        verdict = self._rules[key](access, request, version)
        return _with_messages(verdict) if key in _KEYS_WITH_MESSAGES and verdict is not None else verdict


def host_text(host: str) -> str:
    """Returns an address in the form that ACLs use: IPv6 in Java's long form (0:0:0:0:0:0:0:1), IPv4 unchanged."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    scope = f"%{address.scope_id}" if address.scope_id else ""
    groups = struct.unpack(">8H", address.packed)
    return ":".join(f"{group:x}" for group in groups) + scope
