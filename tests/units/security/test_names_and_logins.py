"""Principals, rules that make names of certificates' subjects, and logins in JAAS form."""

from __future__ import annotations

import pytest

from jesenska.base.errors import InvalidConfigError
from jesenska.security.jaas import parse_login, parse_login_file
from jesenska.security.principal import (
    NoMappingError,
    Principal,
    mapped_name,
    parse_mapping_rules,
    parse_principal,
    parse_super_users,
)

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_NAME = "CN=Anna.B,OU=Shop,O=Example,C=CZ"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        (None, _NAME),
        ("DEFAULT", _NAME),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/", "Anna.B@Shop"),
        (r"RULE:^CN=(.*?),.*$/$1/L", "anna.b"),
        (r"RULE:^CN=(.*?),.*$/$1/U", "ANNA.B"),
        (r"RULE:^CN=ben.*$/ben/, RULE:^CN=(\w+)\.\w.*$/$1/L, DEFAULT", "anna"),
        (r"RULE:^CN=ben$/ben/,DEFAULT", _NAME),
        (r"RULE:^CN=Anna.*$/a\/b/", "a/b"),
        ("RULE:CN=Anna/anna/,DEFAULT", _NAME),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_wins(rules: str | None, name: str) -> None:
    assert mapped_name(_NAME, parse_mapping_rules(rules)) == name


def test_a_name_that_no_rule_matches_is_refused() -> None:
    with pytest.raises(NoMappingError):
        mapped_name(_NAME, parse_mapping_rules("RULE:^CN=ben$/ben/"))


@pytest.mark.parametrize("rules", ["NONE", "RULE:^CN=(/x/", "RULE:a/b", "RULE:a/$2/", "DEFAULT DEFAULT", "RULE:a/b/X"])
def test_a_rule_that_cannot_be_read_stops_the_start(rules: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"ssl\.principal\.mapping\.rules"):
        parse_mapping_rules(rules)


def test_super_users_are_separated_by_semicolons() -> None:
    found = parse_super_users("User:admin; User:CN=broker,O=Example;")
    assert found == {Principal("User", "admin"), Principal("User", "CN=broker,O=Example")}
    assert str(parse_principal("User:a:b")) == "User:a:b"
    for text in ("admin", ":admin", "User:"):
        with pytest.raises(InvalidConfigError):
            parse_principal(text)


def test_a_login_has_its_options() -> None:
    login = parse_login(f'{_PLAIN} required username="a\\"b" password=\'x user_anna="s;}}" user_=y debug=true ;')
    assert login.mechanism == "PLAIN"
    assert (login.required("username"), login.required("password")) == ('a"b', "'x")
    assert login.users() == {"anna": "s;}"}
    assert "s;}" not in repr(login)
    with pytest.raises(InvalidConfigError, match="no option other"):
        login.required("other")


def test_a_file_has_logins_by_name_between_comments() -> None:
    found = parse_login_file(
        f"""
        // brokers
        KafkaServer {{
          {_PLAIN} required user_anna=x;
          {_SCRAM} required username="b" password="c"; /* two */
        }};
        # clients
        KafkaClient {{ {_PLAIN} required username=a password=b; }};
        """
    )
    assert [login.mechanism for login in found["KafkaServer"]] == ["PLAIN", "SCRAM"]
    assert found["KafkaClient"][0].options == {"username": "a", "password": "b"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        _PLAIN,
        f"{_PLAIN} required username=secret",
        f"{_PLAIN} maybe username=secret;",
        f"{_PLAIN} required username;",
        f'{_PLAIN} required password="secret',
        f"{_PLAIN} required; {_PLAIN} required;",
        "{};",
    ],
)
def test_a_login_that_cannot_be_read_is_refused_without_its_secret(text: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        parse_login(text)
    assert "secret" not in str(caught.value)
