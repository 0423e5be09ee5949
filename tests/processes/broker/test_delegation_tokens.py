"""Delegation tokens on a broker: what a user may do with them, logins with them, and the restart of the broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.cli.kafka.cluster.kafka_delegation_tokens import main as kafka_delegation_tokens
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from jesenska.wire.messages.k39_renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from jesenska.wire.messages.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from jesenska.wire.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from tests.peers.apache_kafka import free_port
from tests.processes.broker.token_scenario import (
    PLAIN,
    RIGHTS,
    SCRAM,
    SETTINGS,
    create,
    describe,
    logged_in,
    outcomes,
    token_login,
    until,
    user_login,
    without_tokens,
)


def _settings(**more: str) -> tuple[dict[str, str], str, str]:
    """Settings of a broker with two listeners, and their addresses: PLAINTEXT and SASL_PLAINTEXT."""
    plain, secured = (f"127.0.0.1:{free_port()}" for _ in range(2))
    listeners = {"listeners": f"PLAINTEXT://{plain},SASL_PLAINTEXT://{secured}"}
    return SETTINGS | listeners | {name.replace("_", "."): value for name, value in more.items()}, plain, secured


_REFUSED = {"expires after": 0, "lives": 0, "id": 0, "hmac": 0, "issued": -1}
_ANNAS = {"owner": "User:anna", "requester": "User:anna"}
_MADE = {"error": "NONE", "id": 22, "hmac": 64, "issued": True}
#: Outcomes on a broker on which users need rights: the same as those of Apache Kafka, as `tests/conformance` shows.
_WITH_RIGHTS: dict[str, Any] = {
    "a stranger creates": {
        "error": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
        "owner": "User:ANONYMOUS",
        "requester": "User:ANONYMOUS",
        **_REFUSED,
    },
    "a stranger describes": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "a stranger renews": ("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", -1),
    "a short life": {**_ANNAS, "expires after": 50_000, "lives": 50_000, **_MADE},
    "a long life": {
        "owner": "User:anna",
        "requester": "User:anna",
        "expires after": 100_000,
        "lives": 900_000,
        **_MADE,
    },
    "another owner": {
        "error": "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
        "owner": "User:ben",
        "requester": "User:anna",
        **_REFUSED,
    },
    "another owner, by the administrator": {
        "owner": "User:ben",
        "requester": "User:admin",
        "expires after": 100_000,
        "lives": 900_000,
        **_MADE,
    },
    "zoe describes all": [],
    "zoe renews": ("DELEGATION_TOKEN_OWNER_MISMATCH", -1),
    "zoe expires later": ("DELEGATION_TOKEN_OWNER_MISMATCH", -1),
    "ben renews": 200,
    "ben expires later": 300,
    "renewed by default": 100,
    "renewed for ever": 900,
    "unknown renewed": ("DELEGATION_TOKEN_NOT_FOUND", -1),
    "login by SCRAM-SHA-512": (0, 9),
    "renewed by a token": ("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", -1),
    "login with a wrong HMAC": 58,
    "login with an unknown id": 58,
    "login with no sign of a token": 58,
    "renewed after its end": ("DELEGATION_TOKEN_NOT_FOUND", -1),
    "login after its end": 58,
}


def test_users_do_with_tokens_what_their_rights_allow(tmp_path: Path) -> None:
    settings, plain, secured = _settings(authorizer_class_name="kafka.security.authorizer.AclAuthorizer")
    with BrokerProcess(tmp_path / "data", settings=settings | RIGHTS):
        found = {outcome.what: outcome.answer for outcome in outcomes(plain, secured)}
    assert {what: found[what] for what in _WITH_RIGHTS} == _WITH_RIGHTS


def test_without_an_authorizer_a_user_may_have_a_token_of_another_one(tmp_path: Path) -> None:
    settings, _, secured = _settings()
    with (
        BrokerProcess(tmp_path / "data", settings=settings),
        logged_in(secured, user_login("anna"), "PLAIN") as (anna, _, _),
    ):
        made = create(anna, owner=("User", "ben"))
        assert (made.error_code, made.principal_name) == (0, "ben")


@pytest.mark.parametrize("version", range(4))
def test_tokens_are_served_in_every_version(tmp_path: Path, version: int) -> None:
    settings, _, secured = _settings()
    with (
        BrokerProcess(tmp_path / "data", settings=settings),
        logged_in(secured, user_login("anna"), "PLAIN") as (anna, _, _),
    ):
        made = anna.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), version, CreateDelegationTokenResponse)
        assert (made.error_code, made.principal_name) == (0, "anna")
        assert made.token_requester_principal_name == ("anna" if version == 3 else "")
        described = anna.ask(DescribeDelegationTokenRequest(owners=None), version, DescribeDelegationTokenResponse)
        assert [bytes(token.hmac) for token in described.tokens] == [bytes(made.hmac)]
        assert described.tokens[0].token_requester_principal_name == made.token_requester_principal_name
        at_most_2 = min(version, 2)
        renewed = anna.ask(
            RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=1), at_most_2, RenewDelegationTokenResponse
        )
        expired = anna.ask(
            ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1),
            at_most_2,
            ExpireDelegationTokenResponse,
        )
        assert renewed.error_code == 0
        assert expired.error_code in (0, ErrorCode.DELEGATION_TOKEN_EXPIRED)


def test_a_broker_without_a_secret_has_no_tokens(tmp_path: Path) -> None:
    settings, _, secured = _settings()
    del settings["delegation.token.secret.key"]
    with BrokerProcess(tmp_path / "data", settings=settings):
        found = {outcome.what: outcome.answer for outcome in without_tokens(secured)}
    assert found["creates"]["error"] == "DELEGATION_TOKEN_AUTH_DISABLED"
    assert found["describes"] == "DELEGATION_TOKEN_AUTH_DISABLED"
    assert found["renews"] == ("DELEGATION_TOKEN_AUTH_DISABLED", -1)
    assert found["login with a token"] == 58


def _token_of_anna(secured: str, life_ms: int = -1) -> CreateDelegationTokenResponse:
    with logged_in(secured, user_login("anna"), "PLAIN") as (anna, _, _):
        return create(anna, life_ms=life_ms)


def test_a_token_is_valid_after_a_restart_and_with_the_older_name_of_the_secret(tmp_path: Path) -> None:
    settings, _, secured = _settings()
    with BrokerProcess(tmp_path / "data", settings=settings):
        made = _token_of_anna(secured)
    settings["delegation.token.master.key"] = settings.pop("delegation.token.secret.key")
    with (
        BrokerProcess(tmp_path / "data", settings=settings),
        logged_in(secured, token_login(made.token_id, bytes(made.hmac)), "SCRAM-SHA-256") as (_, error, _),
    ):
        assert error == 0


def test_another_secret_makes_old_tokens_useless(tmp_path: Path) -> None:
    settings, _, secured = _settings()
    with BrokerProcess(tmp_path / "data", settings=settings):
        made = _token_of_anna(secured)
    settings["delegation.token.secret.key"] = "another"
    with (
        BrokerProcess(tmp_path / "data", settings=settings),
        logged_in(secured, token_login(made.token_id, bytes(made.hmac)), "SCRAM-SHA-256") as (_, error, _),
    ):
        assert error == 58


def test_expired_tokens_are_removed(tmp_path: Path) -> None:
    settings, _, secured = _settings(delegation_token_expiry_check_interval_ms="10")
    with (
        BrokerProcess(tmp_path / "data", settings=settings),
        logged_in(secured, user_login("anna"), "PLAIN") as (anna, _, _),
    ):
        create(anna, life_ms=1)
        kept = create(anna)
        until(lambda: [token.token_id for token in describe(anna, all_of_them=True).tokens] == [kept.token_id])


@pytest.mark.parametrize("secret", ["token-sEcret"])
def test_neither_the_secret_nor_an_hmac_is_in_the_log(tmp_path: Path, secret: str) -> None:
    settings, _, secured = _settings()
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        made = _token_of_anna(secured)
        with logged_in(secured, token_login(made.token_id, b"wrong"), "SCRAM-SHA-256"):
            pass
        said = broker.log
    assert made.token_id in said
    assert secret not in said
    assert bytes(made.hmac).hex() not in said


# --- kafka-delegation-tokens -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """The flags of a client by user: the broker's address, and a file with the login."""
    directory = tmp_path_factory.mktemp("tokens")
    settings, _, secured = _settings(authorizer_class_name="kafka.security.authorizer.AclAuthorizer")
    flags = {}
    for name in ("anna", "ben"):
        file = directory / f"{name}.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={PLAIN} username="{name}" password="{name}";\n'
        )
        flags[name] = ["--bootstrap-server", secured, "--command-config", str(file)]
    with BrokerProcess(directory / "data", settings=settings | RIGHTS):
        yield flags


def _tool(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = kafka_delegation_tokens(words)
    said = capsys.readouterr()
    return code, said.out, said.err


def _made(capsys: pytest.CaptureFixture[str], flags: list[str], *more: str) -> dict[str, Any]:
    code, out, _ = _tool(capsys, *flags, "--create", "--max-life-time-period", "-1", "--output", "json", *more)
    assert code == 0
    made: dict[str, Any] = json.loads(out)
    return made


def test_the_tool_shows_a_new_token_as_kafkas_does(
    where: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    create_words = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:ben")
    code, out, _ = _tool(capsys, *where["anna"], *create_words)
    assert code == 0
    lines = out.split("\n")
    assert lines[0] == "Calling create token operation with renewers :[User:ben] , max-life-time-period :-1"
    token_id = lines[1].removeprefix("Created delegation token with tokenId : ")
    assert lines[2::2] == ["", "", ""]
    assert lines[3] == (
        "TOKENID         HMAC                           OWNER           REQUESTER       RENEWERS                  "
        "ISSUEDATE       EXPIRYDATE      MAXDATE        "
    )
    assert lines[5].split()[0] == token_id
    assert lines[5].split()[2:5] == ["User:anna", "User:anna", "[User:ben]"]


def test_the_tool_renews_expires_and_lists_tokens(
    where: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    made = _made(capsys, where["anna"], "--renewer-principal", "User:ben")
    mac = made["hmac"]
    code, out, _ = _tool(capsys, *where["ben"], "--renew", "--hmac", mac, "--renew-time-period", "500000")
    assert code == 0
    assert out.startswith(
        f"Calling renew token operation with hmac :{mac} , renew-time-period :500000\nCompleted renew "
    )
    code, out, _ = _tool(capsys, *where["ben"], "--describe", "--output", "json", "--owner-principal", "User:anna")
    found = next(item for item in json.loads(out) if item["tokenId"] == made["tokenId"])
    assert found["expiryTimestamp"] > made["expiryTimestamp"]
    assert found | {"expiryTimestamp": 0} == made | {"expiryTimestamp": 0}
    assert _tool(capsys, *where["anna"], "--expire", "--hmac", mac, "--expiry-time-period", "-1")[0] == 0
    _, out, _ = _tool(capsys, *where["anna"], "--describe", "--output", "json")
    assert made["tokenId"] not in out


@pytest.mark.parametrize(
    ("user", "words", "cause"),
    [
        ("anna", "--renew --hmac eHg= --renew-time-period -1", "no delegation token with this HMAC"),
        ("anna", "--create --max-life-time-period -1 --owner-principal User:ben", "CreateTokens"),
        ("anna", "--create --max-life-time-period -1 --renewer-principal Group:x", "User:NAME"),
        ("anna", "--create", "max-life-time-period"),
        ("anna", "--create --describe", "exactly one action"),
        ("anna", "--renew --hmac x --renew-time-period 1", "base64"),
        ("anna", "--describe --owner-principal anna", "User:anna"),
    ],
)
def test_a_mistake_is_told_with_its_remedy(
    where: dict[str, list[str]], capsys: pytest.CaptureFixture[str], user: str, words: str, cause: str
) -> None:
    try:
        code, _, said = _tool(capsys, *where[user], *words.split())
    except SystemExit as end:
        code, said = int(str(end.code)), capsys.readouterr().err
    assert code != 0
    assert cause in said


def test_a_client_of_ours_logs_in_with_a_token(
    where: dict[str, list[str]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made = _made(capsys, where["anna"])
    file = tmp_path / "token.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={SCRAM} username="{made["tokenId"]}" password="{made["hmac"]}" tokenauth="true";\n'
    )
    address = where["anna"][:2]
    code, _, said = _tool(capsys, *address, "--command-config", str(file), "--describe")
    assert code != 0
    assert "not with a token" in said
