"""Access rules of two brokers that share a tree: what one of them changes the other hears, and neither loses what the
other wrote."""

from __future__ import annotations

from typing import Any

import pytest

from jesenska.base.errors import InvalidRequestError, KafkaStorageError
from jesenska.config.layers import BrokerConfig
from jesenska.controller.acls import AclChanges
from jesenska.controller.events import EVERYTHING, CreateAcls, DeleteAcls, Event, Look, ReadAcls
from jesenska.metadata import paths
from jesenska.metadata.acl_nodes import acl_path, change_prefix, encode_acl_change, encode_acls
from jesenska.metadata.nodes import NodeFormatError
from jesenska.metadata.tree_operations import Create, SetData
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
from tests.units.controller.world import World

CLICKS = ResourcePattern(ResourceType.TOPIC, "clicks")
CL = ResourcePattern(ResourceType.TOPIC, "cl", PatternType.PREFIXED)
READ = AclEntry("User:anna", "*", AclOperation.READ, Permission.ALLOW)
WRITE = AclEntry("User:anna", "*", AclOperation.WRITE, Permission.ALLOW)


class Rules(World):
    """Two brokers with their rules, on one tree."""

    def __init__(self) -> None:
        super().__init__()
        self.settle()
        self.write(*(Create(path) for path in paths.ACL_PATHS))
        self.acls = [Acls(), Acls()]
        self.machines = [AclChanges(number, acls, BrokerConfig({})) for number, acls in enumerate(self.acls)]

    def begin(self) -> None:
        for number in (0, 1):
            assert self.asked(number, ReadAcls) is None

    def put(self, number: int, make: Any) -> int:
        self.last_token += 1
        self.bring_to(self.machines[number], make(self.last_token))
        return self.last_token

    def asked(self, number: int, make: Any) -> Any:
        token = self.put(number, make)
        self.settle()
        return self.answers[token]

    def create(self, number: int, *bindings: AclBinding) -> Any:
        return self.asked(number, lambda token: CreateAcls(token, bindings))

    def delete(self, number: int, *filters: AclFilter) -> Any:
        return self.asked(number, lambda token: DeleteAcls(token, filters))

    def known(self) -> list[set[AclBinding]]:
        return [set(acls.bindings(AclFilter())) for acls in self.acls]


@pytest.fixture
def rules() -> Rules:
    return Rules()


def test_a_rule_that_one_broker_adds_holds_at_every_broker(rules: Rules) -> None:
    rules.begin()
    added = {AclBinding(CLICKS, READ), AclBinding(CLICKS, WRITE), AclBinding(CL, READ)}
    assert rules.create(0, *sorted(added)) == [None, None, None]
    assert rules.known() == [added, added]
    assert rules.tree.get(acl_path(CLICKS))[0] == encode_acls([READ, WRITE])


def test_rules_that_were_there_are_read_at_the_start(rules: Rules) -> None:
    rules.write(Create(acl_path(CL), encode_acls([READ])))
    rules.begin()
    assert rules.known() == [{AclBinding(CL, READ)}] * 2


def test_two_brokers_that_change_one_resource_at_once_keep_both_changes(rules: Rules) -> None:
    rules.begin()
    tokens = [
        rules.put(number, lambda token, entry=entry: CreateAcls(token, (AclBinding(CLICKS, entry),)))
        for number, entry in enumerate((READ, WRITE))
    ]
    rules.settle()
    assert [rules.answers[token] for token in tokens] == [[None], [None]]
    both = {AclBinding(CLICKS, READ), AclBinding(CLICKS, WRITE)}
    assert rules.known() == [both, both]


def test_a_resource_without_rules_has_no_node(rules: Rules) -> None:
    rules.begin()
    rules.create(0, AclBinding(CLICKS, READ), AclBinding(CL, READ))
    (found,) = rules.delete(1, AclFilter(name="clicks", pattern_type=PatternType.ANY))
    assert found == [(AclBinding(CLICKS, READ), None)]
    assert rules.tree.exists(acl_path(CLICKS)) is None
    assert rules.known() == [{AclBinding(CL, READ)}] * 2


def test_a_rule_that_two_filters_choose_is_told_once(rules: Rules) -> None:
    rules.begin()
    rules.create(0, AclBinding(CLICKS, READ))
    assert rules.delete(0, AclFilter(), AclFilter(name="clicks"), AclFilter(name="x")) == [
        [(AclBinding(CLICKS, READ), None)],
        [],
        [],
    ]


def test_a_change_that_changes_nothing_writes_nothing(rules: Rules) -> None:
    rules.begin()
    rules.create(0, AclBinding(CLICKS, READ))
    before = rules.tree.children(paths.ACL_CHANGES)[0]
    assert rules.create(1, AclBinding(CLICKS, READ)) == [None]
    assert rules.tree.children(paths.ACL_CHANGES)[0] == before


def test_a_name_that_no_node_can_have_is_refused(rules: Rules) -> None:
    rules.begin()
    (error, done) = rules.create(
        0, AclBinding(ResourcePattern(ResourceType.GROUP, "a/b"), READ), AclBinding(CLICKS, READ)
    )
    assert isinstance(error, InvalidRequestError)
    assert done is None


def test_while_the_tree_is_out_of_reach_the_last_rules_hold_and_changes_are_refused(rules: Rules) -> None:
    rules.begin()
    rules.create(0, AclBinding(CLICKS, READ))
    rules.unreachable = True
    (error,) = rules.create(0, AclBinding(CLICKS, WRITE))
    assert isinstance(error, KafkaStorageError)
    assert rules.known()[0] == {AclBinding(CLICKS, READ)}
    rules.unreachable = False
    rules.write(SetData(acl_path(CLICKS), encode_acls([WRITE])))
    event: Event = Look(EVERYTHING)
    rules.bring_to(rules.machines[0], event)
    rules.settle()
    assert rules.known()[0] == {AclBinding(CLICKS, WRITE)}


def test_unreadable_rules_stop_a_start_and_later_leave_the_last_ones(rules: Rules) -> None:
    rules.begin()
    rules.create(0, AclBinding(CLICKS, READ), AclBinding(CL, READ))
    rules.write(
        SetData(acl_path(CLICKS), b"{"),
        SetData(acl_path(CL), encode_acls([WRITE])),
        Create(change_prefix(CLICKS), encode_acl_change(CLICKS), sequential=True),
        Create(change_prefix(CL), encode_acl_change(CL), sequential=True),
    )
    rules.settle()
    assert rules.known() == [{AclBinding(CLICKS, READ), AclBinding(CL, WRITE)}] * 2
    assert isinstance(rules.asked(0, ReadAcls), NodeFormatError)


def test_a_change_node_that_cannot_be_read_is_said_and_passed_over(rules: Rules) -> None:
    rules.begin()
    rules.write(Create(f"{paths.ACL_CHANGES}/acl_changes_", b"nothing", sequential=True))
    rules.settle()
    rules.create(0, AclBinding(CLICKS, READ))
    assert rules.known() == [{AclBinding(CLICKS, READ)}] * 2
    assert any("is ignored" in text for text in rules.said)
