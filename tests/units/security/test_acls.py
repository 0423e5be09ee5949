"""Decisions of the authorizer: the rules one by one, and all of them against a model that looks at every entry."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from jesenska.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    Acls,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from jesenska.security.principal import Principal

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ANNA, HERE = "User:anna", "10.0.0.1"


def allow(operation: AclOperation, principal: str = ANNA, host: str = "*") -> AclEntry:
    return AclEntry(principal, host, operation, ALLOW)


def deny(operation: AclOperation, principal: str = ANNA, host: str = "*") -> AclEntry:
    return AclEntry(principal, host, operation, DENY)


def acls_of(rules: dict[str, list[AclEntry]], *, everyone: bool = False, kind: ResourceType = TOPIC) -> Acls:
    """Access rules of topics by name; a name that ends in a dash is a prefixed pattern."""
    acls = Acls([Principal("User", "admin")], allow_everyone_if_none=everyone)
    for name, entries in rules.items():
        pattern_type = PatternType.PREFIXED if name.endswith("-") else PatternType.LITERAL
        acls.put(ResourcePattern(kind, name, pattern_type), entries)
    return acls


def may(acls: Acls, operation: AclOperation, name: str = "clicks", principal: str = ANNA, host: str = HERE) -> bool:
    return acls.allows(principal, host, operation, TOPIC, name)


def test_what_no_entry_allows_is_refused() -> None:
    acls = acls_of({"clicks": [allow(READ)]})
    assert may(acls, READ)
    assert not may(acls, WRITE)
    assert not may(acls, READ, "other")
    assert not may(acls, READ, principal="User:ben")
    assert not acls.allows(ANNA, HERE, READ, GROUP, "clicks")


def test_a_super_user_passes_before_anything() -> None:
    acls = acls_of({"clicks": [deny(ALL, "User:*")]})
    assert may(acls, WRITE, principal="User:admin")
    assert acls.allows_any("User:admin", HERE, WRITE, TOPIC)


def test_a_denial_wins_over_every_permission() -> None:
    acls = acls_of({"clicks": [allow(ALL)], "cl-": [], "*": [deny(READ, "User:*")]})
    assert not may(acls, READ)
    assert may(acls, WRITE)


def test_reading_writing_deleting_and_altering_allow_describing_but_their_denial_does_not_deny_it() -> None:
    for operation in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER):
        assert may(acls_of({"clicks": [allow(operation)]}), DESCRIBE)
    assert may(acls_of({"clicks": [allow(DESCRIBE), deny(READ)]}), DESCRIBE)
    assert not may(acls_of({"clicks": [allow(READ), deny(DESCRIBE)]}), DESCRIBE)
    assert not may(acls_of({"clicks": [allow(AclOperation.CREATE)]}), DESCRIBE)
    assert may(acls_of({"clicks": [allow(AclOperation.ALTER_CONFIGS)]}), AclOperation.DESCRIBE_CONFIGS)


def test_hosts_count_by_their_text() -> None:
    acls = acls_of({"clicks": [allow(READ, host=HERE), deny(READ, "User:*", "10.0.0.2")], "*": [allow(READ)]})
    assert may(acls, READ)
    assert not may(acls, READ, host="10.0.0.2")
    assert not may(acls_of({"clicks": [allow(READ, host=HERE)]}), READ, host="10.0.0.9")


def test_prefixed_patterns_of_every_length_count() -> None:
    acls = acls_of({"a-": [allow(READ)], "a-b-": [allow(WRITE)], "a-b-c-": [deny(READ)]})
    assert may(acls, READ, "a-b-x")
    assert may(acls, WRITE, "a-b-x")
    assert not may(acls, READ, "a-b-c-d")
    assert not may(acls, READ, "a")


def test_without_any_entry_allow_everyone_decides_and_an_entry_of_another_user_switches_it_off() -> None:
    acls = acls_of({"clicks": [allow(READ, "User:ben")]}, everyone=True)
    assert may(acls, WRITE, "other")
    assert not may(acls, READ)
    assert not may(acls_of({}), READ)


def test_a_change_counts_from_the_next_decision_on() -> None:
    acls = acls_of({"clicks": [allow(READ)]})
    assert may(acls, READ)
    version = acls.version
    acls.put(ResourcePattern(TOPIC, "clicks"), [])
    assert not may(acls, READ)
    assert acls.version > version
    assert list(acls.patterns()) == []


def test_any_resource_of_a_type_is_allowed_if_one_permission_is_not_wholly_denied() -> None:
    def any_of(**rules: list[AclEntry]) -> bool:
        named = {name.replace("_", "-").replace("every", "*"): entries for name, entries in rules.items()}
        return acls_of(named).allows_any(ANNA, HERE, WRITE, TOPIC)

    assert not any_of()
    assert any_of(clicks=[allow(WRITE)])
    assert not any_of(clicks=[allow(READ)])
    assert not any_of(clicks=[allow(WRITE), deny(WRITE)])
    assert not any_of(clicks=[allow(WRITE)], every=[deny(ALL, "User:*")])
    assert not any_of(a_b=[allow(WRITE)], a_=[deny(WRITE)])
    assert any_of(a_b=[allow(WRITE)], a_b_=[deny(WRITE)], a_=[allow(WRITE)])
    assert acls_of({}, everyone=True).allows_any(ANNA, HERE, WRITE, TOPIC)
    assert not acls_of({"*": [deny(WRITE)]}, everyone=True).allows_any(ANNA, HERE, WRITE, TOPIC)


def test_filters_choose_by_pattern_and_by_entry() -> None:
    acls = acls_of({"clicks": [allow(READ), deny(WRITE)], "cl-": [allow(READ)], "*": [allow(READ, "User:ben")]})

    def chosen(wanted: AclFilter) -> set[tuple[str, str]]:
        return {(pattern.name, entry.operation.name) for pattern, entry in acls.bindings(wanted)}

    assert len(chosen(AclFilter())) == 4
    assert chosen(AclFilter(TOPIC, "clicks", PatternType.LITERAL)) == {("clicks", "READ"), ("clicks", "WRITE")}
    assert chosen(AclFilter(TOPIC, "cl-ock", PatternType.MATCH)) == {("cl-", "READ"), ("*", "READ")}
    assert chosen(AclFilter(TOPIC, "cl-", PatternType.ANY)) == {("cl-", "READ")}
    assert chosen(AclFilter(GROUP)) == set()
    assert chosen(AclFilter(principal="User:ben")) == {("*", "READ")}
    assert chosen(AclFilter(permission=DENY)) == {("clicks", "WRITE")}
    assert chosen(AclFilter(operation=READ, host="elsewhere")) == set()


def test_operations_are_the_bits_of_what_is_allowed() -> None:
    acls = acls_of({"clicks": [allow(READ)]})
    assert acls.operations(ANNA, HERE, TOPIC, "clicks") == 1 << READ | 1 << DESCRIBE
    assert acls.operations("User:admin", HERE, GROUP, "g") == sum(1 << bit for bit in (3, 6, 8, 10, 11))


def test_labels_are_those_of_kafkas_nodes() -> None:
    assert ResourceType.TRANSACTIONAL_ID.label == "TransactionalId"
    assert AclOperation.of_label("DescribeConfigs") is AclOperation.of_label("DESCRIBE_CONFIGS")
    assert AclOperation.of_label("fly") is None
    assert AclOperation.of_code(99) is AclOperation.UNKNOWN


_PRINCIPALS, _HOSTS = st.sampled_from(["User:a", "User:b", "User:*"]), st.sampled_from(["h1", "h2", "*"])
_NAMES = st.sampled_from(["*", "a", "ab", "abc", "b", "ba", "c"])
_ENTRIES = st.builds(
    AclEntry,
    _PRINCIPALS,
    _HOSTS,
    st.sampled_from([ALL, READ, WRITE, AclOperation.DELETE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS]),
    st.sampled_from([ALLOW, DENY]),
)
_BINDINGS = st.builds(
    AclBinding,
    st.builds(
        ResourcePattern,
        st.sampled_from([TOPIC, GROUP]),
        _NAMES,
        st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    ),
    _ENTRIES,
)


def naive(bindings: set[AclBinding], everyone: bool, operation: AclOperation, name: str) -> bool:
    """The decision for User:a at h1 about a topic, by a look at every binding."""
    found = [
        entry
        for pattern, entry in bindings
        if pattern.resource_type is TOPIC
        and (
            name.startswith(pattern.name)
            if pattern.pattern_type is PatternType.PREFIXED
            else pattern.name in ("*", name)
        )
    ]
    if not found:
        return everyone
    mine = [entry for entry in found if entry.principal in ("User:a", "User:*") and entry.host in ("h1", "*")]
    if any(entry.permission is DENY and entry.operation in (operation, ALL) for entry in mine):
        return False
    enough = {operation, ALL}
    if operation is DESCRIBE:
        enough |= {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if operation is AclOperation.DESCRIBE_CONFIGS:
        enough.add(AclOperation.ALTER_CONFIGS)
    return any(entry.permission is ALLOW and entry.operation in enough for entry in mine)


@settings(max_examples=2000, deadline=None)
@given(bindings=st.sets(_BINDINGS, max_size=12), removed=st.sets(_BINDINGS, max_size=4), everyone=st.booleans())
def test_decisions_are_those_of_a_look_at_every_entry(
    bindings: set[AclBinding], removed: set[AclBinding], everyone: bool
) -> None:
    acls = Acls(allow_everyone_if_none=everyone)
    names = ["a", "abc", "ba", "c", "x"]
    operations = [READ, WRITE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS]
    for kept in (bindings | removed, bindings - removed):
        for pattern in {pattern for pattern, _ in bindings | removed}:
            acls.put(pattern, [entry for at, entry in kept if at == pattern])
        assert set(acls.bindings(AclFilter())) == kept
        for name in names:
            for operation in operations:
                allowed = acls.allows("User:a", "h1", operation, TOPIC, name)
                assert allowed == naive(kept, everyone, operation, name)
                # The second answer is remembered.
                assert acls.allows("User:a", "h1", operation, TOPIC, name) == allowed
