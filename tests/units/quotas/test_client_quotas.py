"""The quota that counts for a client, and what it shares with others."""

from __future__ import annotations

import itertools

import pytest

from jesenska.quotas.client_quotas import ClientQuotas
from jesenska.quotas.connection_rates import ConnectionRates
from jesenska.quotas.entities import (
    ABSENT,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Part,
    QuotaEntity,
    quota_for,
)
from jesenska.quotas.rate import Windows

_ANNA, _APP = Part(True, "anna"), Part(True, "app")
#: Kafka's order (KIP-55), with the user and client id that share the quota.
_LEVELS = [
    (QuotaEntity(_ANNA, _APP), ("anna", "app")),
    (QuotaEntity(_ANNA, DEFAULT), ("anna", "app")),
    (QuotaEntity(_ANNA, ABSENT), ("anna", "")),
    (QuotaEntity(DEFAULT, _APP), ("anna", "app")),
    (QuotaEntity(DEFAULT, DEFAULT), ("anna", "app")),
    (QuotaEntity(DEFAULT, ABSENT), ("anna", "")),
    (QuotaEntity(ABSENT, _APP), ("", "app")),
    (QuotaEntity(ABSENT, DEFAULT), ("", "app")),
]


class Time:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def quotas_of(
    quotas: dict[QuotaEntity, dict[str, float]], time: Time, defaults: dict[str, float] | None = None
) -> ClientQuotas:
    made = ClientQuotas(time, Windows(), Windows(), defaults or {})
    made.replace(quotas)
    return made


def test_the_first_level_with_a_quota_counts() -> None:
    for size in (1, 2, 8):
        for chosen in itertools.combinations(range(8), size):
            quotas = {_LEVELS[number][0]: {PRODUCER_BYTE_RATE: float(number + 1)} for number in chosen}
            found = quota_for(quotas, PRODUCER_BYTE_RATE, "anna", "app")
            assert found is not None
            assert (found.quota, (found.user, found.client_id)) == (chosen[0] + 1, _LEVELS[chosen[0]][1])


def test_a_level_without_a_quota_of_the_kind_is_passed() -> None:
    quotas = {_LEVELS[0][0]: {CONSUMER_BYTE_RATE: 1.0}, _LEVELS[7][0]: {PRODUCER_BYTE_RATE: 2.0}}
    found = quota_for(quotas, PRODUCER_BYTE_RATE, "anna", "app")
    assert found is not None
    assert found.quota == 2.0
    assert quota_for(quotas, REQUEST_PERCENTAGE, "anna", "app") is None


def test_others_have_no_quota() -> None:
    quotas = quotas_of({QuotaEntity(_ANNA, ABSENT): {PRODUCER_BYTE_RATE: 1.0}}, Time())
    assert quotas.limits_for("ben", "app") is None
    assert quotas.limits_for("anna", "any") is not None


def test_clients_of_a_user_share_the_users_quota() -> None:
    quotas = quotas_of({QuotaEntity(_ANNA, ABSENT): {PRODUCER_BYTE_RATE: 100.0}}, Time())
    first, second = quotas.limits_for("anna", "a"), quotas.limits_for("anna", "b")
    assert first is not None
    assert second is not None
    assert first.produced(1000, 0) == 0
    assert second.produced(1000, 0) == 10_000


def test_a_default_is_for_each_client_by_itself() -> None:
    quotas = quotas_of({QuotaEntity(ABSENT, DEFAULT): {PRODUCER_BYTE_RATE: 100.0}}, Time())
    first, second = quotas.limits_for("anna", "a"), quotas.limits_for("anna", "b")
    assert first is not None
    assert second is not None
    assert first.produced(2000, 0) == 10_000
    assert second.produced(1000, 0) == 0


def test_amounts_stay_when_quotas_change() -> None:
    entity = QuotaEntity(_ANNA, ABSENT)
    quotas = quotas_of({entity: {PRODUCER_BYTE_RATE: 100.0}}, Time())
    limits = quotas.limits_for("anna", "a")
    assert limits is not None
    assert limits.produced(1000, 0) == 0
    quotas.replace({entity: {PRODUCER_BYTE_RATE: 50.0}})
    limits = quotas.limits_for("anna", "a")
    assert limits is not None
    assert limits.produced(0, 0) == 10_000
    quotas.replace({})
    assert not quotas.is_active
    assert quotas.limits_for("anna", "a") is None


def test_an_empty_answer_does_not_count_its_bytes() -> None:
    quotas = quotas_of({QuotaEntity(_ANNA, ABSENT): {CONSUMER_BYTE_RATE: 100.0}}, Time())
    limits = quotas.limits_for("anna", "a")
    assert limits is not None
    assert limits.fetch_max_bytes == 1000
    assert limits.fetched(3000, 0.0, 0) == 20_000
    assert limits.fetched(1000, 0.0, 0) == 0


def test_the_time_of_requests_is_a_percentage_of_a_thread() -> None:
    """A client waits for a window at most."""
    quotas = quotas_of({QuotaEntity(_ANNA, ABSENT): {REQUEST_PERCENTAGE: 1.0}}, Time())
    limits = quotas.limits_for("anna", "a")
    assert limits is not None
    assert limits.requested(0.1, 0) == 0
    assert limits.requested(0.01, 0) == 1000
    assert limits.request is not None
    assert limits.request.rate.value(0) == pytest.approx(1.1)


def test_changes_of_partitions_are_shared_as_other_quotas_are() -> None:
    time = Time()
    quotas = quotas_of({QuotaEntity(_ANNA, ABSENT): {CONTROLLER_MUTATION_RATE: 1.0}}, time)
    first, second = quotas.limits_for("anna", "a"), quotas.limits_for("anna", "b")
    assert first is not None
    assert second is not None
    assert first.mutations is not None
    assert first.mutations is second.mutations


def test_defaults_of_the_configuration_are_for_each_client_id_without_another() -> None:
    quotas = quotas_of({QuotaEntity(_ANNA, ABSENT): {PRODUCER_BYTE_RATE: 7.0}}, Time(), {PRODUCER_BYTE_RATE: 5.0})
    anna, ben = quotas.limits_for("anna", "a"), quotas.limits_for("ben", "a")
    assert anna is not None
    assert ben is not None
    assert (anna.produce and anna.produce.quota, ben.produce and ben.produce.quota) == (7.0, 5.0)


def test_clients_with_ever_new_names_take_no_more_memory() -> None:
    time = Time()
    quotas = quotas_of({QuotaEntity(ABSENT, DEFAULT): {PRODUCER_BYTE_RATE: 100.0}}, time)
    for number in range(25_000):
        time.now_ms = number * 10
        limits = quotas.limits_for("anna", f"client-{number}")
        assert limits is not None
        limits.produced(1, time.now_ms)
    assert len(quotas._clients) <= 10_000
    assert len(quotas._rates) < 13_000


def test_a_connection_above_its_addresss_rate_is_refused_and_does_not_count() -> None:
    time = Time()
    rates = ConnectionRates(time, Windows())
    rates.replace({"10.0.0.1": 1.0})
    assert [rates.took("PLAINTEXT", "10.0.0.1") for _ in range(10)] == [(0, 0)] * 10
    assert rates.took("PLAINTEXT", "10.0.0.1") == (0, 1000)
    assert rates.took("PLAINTEXT", "10.0.0.1") == (0, 1000)
    assert rates.took("PLAINTEXT", "10.0.0.2") == (0, 0)


def test_a_listener_above_its_rate_takes_no_more_for_a_time() -> None:
    time = Time()
    rates = ConnectionRates(time, Windows())
    rates.limit({None: 2.0, "TLS": 1.0})
    assert [rates.took("TLS", "10.0.0.1") for _ in range(10)] == [(0, 0)] * 10
    assert rates.took("TLS", "10.0.0.1") == (1000, 0)
    assert rates.took("PLAINTEXT", "10.0.0.1") == (0, 0)
    for _ in range(8):
        rates.took("PLAINTEXT", "10.0.0.1")
    assert rates.took("PLAINTEXT", "10.0.0.1") == (500, 0)
