"""Delegation tokens: who may do what with them, how long they live, and logins with them by SCRAM."""

from __future__ import annotations

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.metadata.nodes import NodeFormatError
from jesenska.metadata.token_nodes import decode_token, encode_token
from jesenska.security.delegation_tokens import DelegationToken, DelegationTokens, Lifetimes
from jesenska.security.mechanisms import ScramExchange
from jesenska.security.principal import Principal
from jesenska.security.sasl import SaslError
from jesenska.security.scram import MECHANISMS, ScramClient

ANNA, BEN, EVA, ZOE = (Principal("User", name) for name in ("anna", "ben", "eva", "zoe"))
_HOUR_MS = 3_600_000


def tokens(*known: DelegationToken) -> DelegationTokens:
    made = DelegationTokens("secret", Lifetimes(24 * _HOUR_MS, 168 * _HOUR_MS), lambda count: b"s" * count)
    for token in known:
        made.put(token)
    return made


def token(token_id: str = "t", *, expires_at_ms: int = 2_000, max_at_ms: int = 3_000) -> DelegationToken:
    return DelegationToken(token_id, ANNA, EVA, (BEN,), 1_000, expires_at_ms, max_at_ms)


def test_the_hmac_is_that_of_the_secret_and_the_id() -> None:
    assert tokens().hmac_of("t") == hmac.digest(b"secret", b"t", "sha512")


def test_owner_and_renewers_may_renew_and_the_requester_may_only_describe() -> None:
    assert [token().may_be_renewed_by(user) for user in (ANNA, BEN, EVA, ZOE)] == [True, True, False, False]
    assert [token().belongs_to(user) for user in (ANNA, BEN, EVA, ZOE)] == [True, True, True, False]


@pytest.mark.parametrize(
    ("wanted_ms", "lives_ms", "expires_after_ms"),
    [
        (-1, 168 * _HOUR_MS, 24 * _HOUR_MS),
        (0, 168 * _HOUR_MS, 24 * _HOUR_MS),
        (_HOUR_MS, _HOUR_MS, _HOUR_MS),
        (1000 * _HOUR_MS, 168 * _HOUR_MS, 24 * _HOUR_MS),
    ],
)
def test_a_token_lives_as_long_as_is_wanted_but_no_longer_than_the_broker_allows(
    wanted_ms: int, lives_ms: int, expires_after_ms: int
) -> None:
    made = tokens().new("t", ANNA, ANNA, (), wanted_ms, 5_000)
    assert (made.max_at_ms - 5_000, made.expires_at_ms - 5_000) == (lives_ms, expires_after_ms)


@pytest.mark.parametrize(("period_ms", "until_ms"), [(100, 1_600), (0, 1_500), (10_000, 3_000), (-1, 3_000)])
def test_a_renewal_never_passes_the_maximum(period_ms: int, until_ms: int) -> None:
    assert tokens().renewed_until(token(), period_ms, 1_500) == until_ms


def test_a_token_is_found_by_its_hmac_until_it_is_removed() -> None:
    known = tokens(token("a"), token("b"))
    assert known.of_hmac(known.hmac_of("a")) == token("a")
    assert known.of_hmac(b"") is None
    known.remove("a")
    known.remove("a")
    assert known.of_hmac(known.hmac_of("a")) is None
    assert known.tokens() == [token("b")]


def log_in(known: DelegationTokens, name: str, password: bytes, mechanism: str, now_ms: int) -> ScramExchange:
    server = ScramExchange(
        mechanism,
        "server",
        lambda *_: None,
        lambda kind, token_id: known.credential(kind, token_id, now_ms),
        b"s",
        lambda: now_ms,
    )
    client = ScramClient(mechanism, name, base64.b64encode(password).decode(), "client", is_token=True)
    client.finished(server.step(client.final(server.step(client.first()))))
    return server


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_with_a_token_has_its_owner_and_ends_with_it(mechanism: str) -> None:
    known = tokens(token())
    for _ in range(2):
        server = log_in(known, "t", known.hmac_of("t"), mechanism, 1_500)
        assert server.principal == ANNA
        assert server.is_token
        assert server.lifetime_ms == 500


@pytest.mark.parametrize(
    ("name", "mac_of", "now_ms"), [("t", "u", 1_500), ("u", "u", 1_500), ("t", "t", 2_001), ("t", "t", 3_001)]
)
def test_a_wrong_unknown_or_expired_token_is_refused(name: str, mac_of: str, now_ms: int) -> None:
    known = tokens(token())
    with pytest.raises(SaslError):
        log_in(known, name, known.hmac_of(mac_of), "SCRAM-SHA-256", now_ms)


def test_a_removed_token_logs_no_client_in() -> None:
    known = tokens(token())
    log_in(known, "t", known.hmac_of("t"), "SCRAM-SHA-256", 1_500)
    known.remove("t")
    with pytest.raises(SaslError):
        log_in(known, "t", known.hmac_of("t"), "SCRAM-SHA-256", 1_500)


def test_a_node_is_as_kafka_writes_it() -> None:
    """Recorded from Apache Kafka 3.9.1."""
    node = (
        b'{"issueTimestamp":1795943861215,"renewers":["User%3Aben"],"tokenRequester":"User%3Aanna",'
        b'"tokenId":"SovQEVulRI23XOIN9xybhg","owner":"User%3Aanna","expiryTimestamp":1796030261215,'
        b'"maxTimestamp":1796548661215,"version":3}'
    )
    found = decode_token(node)
    assert found == DelegationToken(
        "SovQEVulRI23XOIN9xybhg", ANNA, ANNA, (BEN,), 1795943861215, 1796030261215, 1796548661215
    )
    assert encode_token(found) == node


def test_a_node_of_an_older_release_has_its_owner_as_requester() -> None:
    node = (
        b'{"version":1,"owner":"User%3Aanna","renewers":[],"issueTimestamp":1,"maxTimestamp":3,"expiryTimestamp":2,'
        b'"tokenId":"t"}'
    )
    assert decode_token(node) == DelegationToken("t", ANNA, ANNA, (), 1, 2, 3)


@given(
    st.builds(
        DelegationToken,
        st.text(min_size=1),
        *[st.builds(Principal, st.just("User"), st.text(min_size=1))] * 2,
        st.lists(st.builds(Principal, st.just("User"), st.text(min_size=1))).map(tuple),
        *[st.integers(0, 2**62)] * 3,
    ).filter(lambda made: all(p.name == p.name.strip() for p in (made.owner, made.requester, *made.renewers)))
)
def test_every_token_survives_its_node(made: DelegationToken) -> None:
    assert decode_token(encode_token(made)) == made


@pytest.mark.parametrize(
    "node",
    [
        b"",
        b"[]",
        b'{"version":4}',
        b'{"version":3,"tokenId":"t","renewers":[],"owner":"anna","issueTimestamp":1,"maxTimestamp":1,"expiryTimestamp":1}',
        b'{"version":3,"tokenId":"t","renewers":{},"owner":"User:a"}',
        b'{"version":3,"tokenId":"t","renewers":[],"owner":"User:a","issueTimestamp":"x"}',
    ],
)
def test_a_malformed_node_is_refused(node: bytes) -> None:
    with pytest.raises(NodeFormatError):
        decode_token(node)
