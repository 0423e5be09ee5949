"""Delegation tokens of two brokers that share a tree: what one of them changes the other learns."""

from __future__ import annotations

from typing import Any

import pytest

from jesenska.base.errors import DelegationTokenNotFoundError, KafkaStorageError
from jesenska.config.layers import BrokerConfig
from jesenska.controller.events import EVERYTHING, ChangeToken, CreateToken, ExpireTokens, Look, ReadTokens
from jesenska.controller.tokens import TokenChanges
from jesenska.metadata import paths
from jesenska.metadata.token_nodes import CHANGE_PREFIX, encode_token, token_path
from jesenska.metadata.tree_operations import Create, Delete
from jesenska.security.delegation_tokens import DelegationToken, DelegationTokens, Lifetimes
from jesenska.security.principal import Principal
from tests.units.controller.world import World

ANNA = Principal("User", "anna")


def token(token_id: str, expires_at_ms: int = 2_000) -> DelegationToken:
    return DelegationToken(token_id, ANNA, ANNA, (), 1_000, expires_at_ms, 3_000)


class Tokens(World):
    """Two brokers with their tokens, on one tree."""

    def __init__(self) -> None:
        super().__init__()
        self.settle()
        self.write(*(Create(path) for path in paths.TOKEN_PATHS))
        self.tokens = [DelegationTokens("secret", Lifetimes(), bytes) for _ in range(2)]
        self.machines = [TokenChanges(number, tokens, BrokerConfig({})) for number, tokens in enumerate(self.tokens)]

    def begin(self) -> None:
        for number in (0, 1):
            assert self.asked(number, ReadTokens) is None

    def asked(self, number: int, make: Any) -> Any:
        self.last_token += 1
        self.bring_to(self.machines[number], make(self.last_token))
        self.settle()
        return self.answers[self.last_token]

    def create(self, number: int, made: DelegationToken) -> Any:
        return self.asked(number, lambda asked: CreateToken(asked, made))

    def change(self, number: int, token_id: str, expires_at_ms: int | None) -> Any:
        return self.asked(number, lambda asked: ChangeToken(asked, token_id, expires_at_ms))

    def known(self) -> list[list[DelegationToken]]:
        return [sorted(tokens.tokens()) for tokens in self.tokens]


@pytest.fixture
def world() -> Tokens:
    return Tokens()


def test_a_token_that_one_broker_makes_is_known_to_every_broker(world: Tokens) -> None:
    world.begin()
    assert world.create(0, token("a")) is None
    assert world.known() == [[token("a")]] * 2
    assert world.tree.get(token_path("a"))[0] == encode_token(token("a"))


def test_tokens_that_exist_are_read_at_the_start(world: Tokens) -> None:
    world.write(Create(token_path("a"), encode_token(token("a"))))
    world.begin()
    assert world.known() == [[token("a")]] * 2


def test_a_renewal_and_a_removal_reach_every_broker(world: Tokens) -> None:
    world.begin()
    world.create(0, token("a"))
    assert world.change(1, "a", 2_500) is None
    assert world.known() == [[token("a", 2_500)]] * 2
    assert world.change(0, "a", None) is None
    assert world.known() == [[], []]
    assert world.tree.exists(token_path("a")) is None


def test_a_token_that_does_not_exist_cannot_be_changed(world: Tokens) -> None:
    world.begin()
    for expires_at_ms in (1_000, None):
        assert isinstance(world.change(0, "x", expires_at_ms), DelegationTokenNotFoundError)


def test_two_brokers_that_remove_a_token_at_once_remove_it_once(world: Tokens) -> None:
    world.begin()
    world.create(0, token("a"))
    for machine in world.machines:
        world.bring_to(machine, ExpireTokens(2_001))
    world.settle()
    assert world.known() == [[], []]


def test_only_expired_tokens_are_removed(world: Tokens) -> None:
    world.begin()
    world.create(0, token("a", 2_000))
    world.create(0, token("b", 2_500))
    world.bring_to(world.machines[0], ExpireTokens(2_000))
    world.settle()
    assert world.known() == [[token("a"), token("b", 2_500)]] * 2
    world.bring_to(world.machines[0], ExpireTokens(2_001))
    world.settle()
    assert world.known() == [[token("b", 2_500)]] * 2


@pytest.mark.parametrize("content", [b"", b"{}", encode_token(token("other"))])
def test_a_token_that_cannot_be_read_is_left_out_and_the_others_are_usable(world: Tokens, content: bytes) -> None:
    world.write(Create(token_path("bad"), content), Create(token_path("good"), encode_token(token("good"))))
    world.begin()
    assert world.known() == [[token("good")]] * 2
    assert any("bad cannot be read" in text for text in world.said)


@pytest.mark.parametrize("content", [b"", b"a/b", b"\xff", b"unknown"])
def test_a_change_node_of_no_token_does_no_harm(world: Tokens, content: bytes) -> None:
    world.begin()
    world.create(0, token("a"))
    world.write(Create(CHANGE_PREFIX, content, sequential=True))
    world.settle()
    assert world.known() == [[token("a")]] * 2


def test_a_token_that_was_removed_while_a_broker_was_away_is_unknown_after_a_look(world: Tokens) -> None:
    world.begin()
    world.create(0, token("a"))
    world.write(Delete(token_path("a")))
    for machine in world.machines:
        world.bring_to(machine, Look(EVERYTHING))
    world.settle()
    assert world.known() == [[], []]


def test_a_token_without_the_nodes_of_tokens_is_refused(world: Tokens) -> None:
    world.begin()
    world.write(*(Delete(path) for path in reversed(paths.TOKEN_PATHS)))
    assert isinstance(world.create(0, token("a")), KafkaStorageError)
    assert world.known() == [[], []]
