"""Access control lists (ACLs): the operations that a principal may do on a resource. An ACL is called a binding here:

    binding     a resource pattern with an entry; the entry has a principal, a host, an operation, and allow or deny
    LITERAL     a pattern for the resource of exactly this name; `*` matches every resource of the type
    PREFIXED    a pattern for every resource whose name begins with the pattern's name

A request is decided by the first rule that applies:

    1  a super user may do everything
    2  if no entry exists for the resource, allow.everyone.if.no.acl.found decides
    3  if an entry denies the operation, it is denied, even if other entries allow it
    4  if an entry allows the operation, it is allowed; otherwise it is denied

An entry matches a principal if the entry's principal has the same text, or is `User:*`. It matches a host if the
entry's host has the same text, or is `*`. It matches an operation if the entry's operation is the same, or ALL. A
principal that may read, write, delete or alter a resource may also describe it. A principal that may alter the
settings of a resource may also describe these settings. These two rules apply only to entries that allow: denying READ
does not deny DESCRIBE. All these rules are the rules of Kafka's AclAuthorizer.

To find the prefixed patterns that match a name, `Acls` looks up only the prefixes of the name whose length some
pattern has. So a decision does not compare every pattern. Decisions are remembered until the next change. The module
uses neither the metadata tree (ZooKeeper) nor the network. Resources and operations of Kafka releases after 4.0 are
not included. TWO_PHASE_COMMIT can be stored and listed, but no request requires it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from jesenska.base.limits import ACL_DECISIONS_MAX
from jesenska.security.principal import Principal

WILDCARD: Final = "*"
ANY_PRINCIPAL: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"

N = TypeVar("N", bound="_Named")


class _Named(IntEnum):
    """A code of the Kafka protocol. `label` is its name in ZooKeeper nodes and in Kafka's tools: Topic for TOPIC."""

    # The hash method of Enum is slow Python code, and codes are in the keys of every remembered decision.
    __hash__ = int.__hash__

    @property
    def label(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))

    @classmethod
    def of_code(cls: type[N], code: int) -> N:
        """Returns the member with this code from a request; UNKNOWN for codes without a member."""
        try:
            return cls(code)
        except ValueError:
            return cls(0)

    @classmethod
    def of_label(cls: type[N], text: str) -> N | None:
        """Returns the member with this name, in upper or lower case, with or without underscores; None if there is no
        such member."""
        wanted = text.replace("_", "").upper()
        return next((item for item in cls if item.name.replace("_", "") == wanted), None)


class ResourceType(_Named):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Named):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Named):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Named):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_O = AclOperation
#: For an operation: the other operations whose permission also allows it.
_IMPLIED_BY: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    _O.DESCRIBE: frozenset((_O.READ, _O.WRITE, _O.DELETE, _O.ALTER)),
    _O.DESCRIBE_CONFIGS: frozenset((_O.ALTER_CONFIGS,)),
}

#: The operations on a resource of each type, except ALL.
OPERATIONS: Final[Mapping[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (
        _O.READ, _O.WRITE, _O.CREATE, _O.DESCRIBE, _O.DELETE, _O.ALTER, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS
    ),
    ResourceType.GROUP: (_O.READ, _O.DESCRIBE, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        _O.CREATE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE, _O.ALTER, _O.DESCRIBE
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.DESCRIBE, _O.WRITE, _O.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}  # fmt: skip


class ResourcePattern(NamedTuple):
    """A resource pattern: selects the resources to which ACL entries apply, by type and name."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class AclEntry(NamedTuple):
    """An ACL entry: allows or denies one operation to a principal at a host."""

    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def decides(self, principal: str, host: str) -> bool:
        """Returns True if the entry matches this principal at this host."""
        return self.principal in (principal, ANY_PRINCIPAL) and self.host in (host, WILDCARD)


class AclBinding(NamedTuple):
    pattern: ResourcePattern
    entry: AclEntry


class AclFilter(NamedTuple):
    """Selects bindings, for listing or deletion. None and ANY match everything. With the pattern type MATCH, `name` is
    the name of a resource, and the filter selects every pattern that matches it."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if pattern.pattern_type is PatternType.LITERAL:
            return pattern.name == WILDCARD
        return self.name.startswith(pattern.name)

    def matches_entry(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def matches(self, binding: AclBinding) -> bool:
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)


Entries = frozenset[AclEntry]
_NO_ENTRIES: Final[Entries] = frozenset()


class _Prefixes:
    """The prefixed patterns of one resource type."""

    __slots__ = ("entries", "lengths")

    def __init__(self) -> None:
        self.entries: dict[str, Entries] = {}
        #: Number of patterns for each length of a pattern's name.
        self.lengths: Counter[int] = Counter()

    def put(self, name: str, entries: Entries) -> None:
        known = self.entries.pop(name, None)
        if known is not None:
            self.lengths[len(name)] -= 1
            if not self.lengths[len(name)]:
                del self.lengths[len(name)]
        if entries:
            self.entries[name] = entries
            self.lengths[len(name)] += 1

    def of(self, name: str) -> Iterator[Entries]:
        """Yields the entries of each pattern whose name is a prefix of this name."""
        for length in self.lengths:
            if length <= len(name):
                found = self.entries.get(name[:length])
                if found is not None:
                    yield found


class Acls:
    """Stores all bindings, and decides requests by them. `put` replaces the entries of a pattern. `version` increases
    with each change."""

    def __init__(self, super_users: Collection[Principal] = (), *, allow_everyone_if_none: bool = False) -> None:
        self.version = 0
        self._super_users = frozenset(map(str, super_users))
        self._allow_everyone_if_none = allow_everyone_if_none
        self._literal: dict[ResourceType, dict[str, Entries]] = {kind: {} for kind in ResourceType}
        self._prefixed: dict[ResourceType, _Prefixes] = {kind: _Prefixes() for kind in ResourceType}
        self._decisions: dict[tuple[str, str, AclOperation, ResourceType, str], bool] = {}

    # --- stored bindings ---------------------------------------------------------------------------------------------

    def put(self, pattern: ResourcePattern, entries: Collection[AclEntry]) -> None:
        """Replaces the entries of a pattern. A pattern without entries is removed."""
        kept = frozenset(entries)
        if pattern.pattern_type is PatternType.PREFIXED:
            self._prefixed[pattern.resource_type].put(pattern.name, kept)
        elif kept:
            self._literal[pattern.resource_type][pattern.name] = kept
        else:
            self._literal[pattern.resource_type].pop(pattern.name, None)
        self._decisions.clear()
        self.version += 1

    def entries(self, pattern: ResourcePattern) -> Entries:
        """Returns the entries of exactly this pattern."""
        if pattern.pattern_type is PatternType.PREFIXED:
            return self._prefixed[pattern.resource_type].entries.get(pattern.name, _NO_ENTRIES)
        return self._literal[pattern.resource_type].get(pattern.name, _NO_ENTRIES)

    def patterns(self) -> Iterator[ResourcePattern]:
        """Yields the patterns that have entries."""
        for kind, literal in self._literal.items():
            for name in literal:
                yield ResourcePattern(kind, name)
        for kind, prefixed in self._prefixed.items():
            for name in prefixed.entries:
                yield ResourcePattern(kind, name, PatternType.PREFIXED)

    def bindings(self, wanted: AclFilter) -> Iterator[AclBinding]:
        """Yields the bindings that match a filter, grouped by pattern."""
        for pattern in self.patterns():
            if wanted.matches_pattern(pattern):
                for entry in sorted(self.entries(pattern)):
                    if wanted.matches_entry(entry):
                        yield AclBinding(pattern, entry)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def allows(self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Returns True if a principal at a host may do the operation on the resource."""
        if principal in self._super_users:
            return True
        key = (principal, host, operation, kind, name)
        decision = self._decisions.get(key)
        if decision is None:
            if len(self._decisions) >= ACL_DECISIONS_MAX:
                self._decisions.clear()
            decision = self._decisions[key] = self._decide(principal, host, operation, kind, name)
        return decision

    def _decide(self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        literal = self._literal[kind]
        found = [entries for text in {name, WILDCARD} if (entries := literal.get(text)) is not None]
        found += self._prefixed[kind].of(name)
        if not found:
            return self._allow_everyone_if_none
        allowing = {operation, AclOperation.ALL, *_IMPLIED_BY.get(operation, ())}
        is_allowed = False
        for entries in found:
            for entry in entries:
                if not entry.decides(principal, host):
                    continue
                if entry.permission is Permission.DENY:
                    if entry.operation in (operation, AclOperation.ALL):
                        return False
                elif entry.operation in allowing:
                    is_allowed = True
        return is_allowed

    def allows_any(self, principal: str, host: str, operation: AclOperation, kind: ResourceType) -> bool:
        """Returns True if a principal may do the operation on at least one resource name of the type. A resource of
        this name need not exist."""
        if principal in self._super_users:
            return True

        def names(found: Mapping[str, Entries], permission: Permission) -> set[str]:
            return {
                name
                for name, entries in found.items()
                for entry in entries
                if entry.permission is permission
                and entry.operation in (operation, AclOperation.ALL)
                and entry.decides(principal, host)
            }

        literal, prefixed = self._literal[kind], self._prefixed[kind].entries
        denied = names(literal, Permission.DENY)
        if WILDCARD in denied:
            return False
        if self._allow_everyone_if_none:
            return True
        denied_prefixes = names(prefixed, Permission.DENY)

        def is_free(name: str) -> bool:
            return not any(name.startswith(prefix) for prefix in denied_prefixes)

        return any(is_free(name) for name in names(literal, Permission.ALLOW) - denied) or any(
            is_free(name) for name in names(prefixed, Permission.ALLOW)
        )

    def operations(self, principal: str, host: str, kind: ResourceType, name: str) -> int:
        """Returns the operations that a principal may do with a resource, as the bit set of KIP-430."""
        return sum(
            1 << operation
            for operation in OPERATIONS[kind]
            if operation is not AclOperation.TWO_PHASE_COMMIT and self.allows(principal, host, operation, kind, name)
        )
