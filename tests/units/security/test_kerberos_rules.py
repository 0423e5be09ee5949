"""Rules that make a user's name from a Kerberos principal. The expected names are those of Apache Kafka 3.9.1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import InvalidConfigError
from jesenska.security.kerberos.principal_rules import PrincipalRules
from jesenska.security.principal import NoMappingError

_REALM = "SHOP.EXAMPLE"


def user(rules: str, principal: str, realm: str = _REALM) -> str | None:
    """The user of a principal; None if it is refused. Rules are separated by ~."""
    try:
        return PrincipalRules(rules.split("~"), realm).user_of(principal)
    except NoMappingError:
        return None


@pytest.mark.parametrize(
    ("rules", "principal", "expected"),
    [
        ("DEFAULT", "anna@SHOP.EXAMPLE", "anna"),
        ("DEFAULT", "kafka/host.example@SHOP.EXAMPLE", "kafka"),
        ("DEFAULT", "anna@OTHER.EXAMPLE", None),
        ("DEFAULT", "anna@shop.example", None),
        ("DEFAULT", "anna/@SHOP.EXAMPLE", "anna"),
        # A rule is for a number of components.
        ("RULE:[1:$1]", "anna@OTHER", "anna"),
        ("RULE:[1:$1]", "kafka/host@OTHER", None),
        ("RULE:[2:$1]", "kafka/host@OTHER", "kafka"),
        ("RULE:[2:$2.$1]", "kafka/host@OTHER", "host.kafka"),
        ("RULE:[0:x]", "anna@SHOP.EXAMPLE", None),
        ("RULE:[3:$3]~DEFAULT", "anna@SHOP.EXAMPLE", "anna"),
        ("RULE:[1:$0.$1]", "anna@OTHER", "OTHER.anna"),
        ("RULE:[1:user]", "anna@OTHER", "user"),
        # A pattern in brackets has to match the whole name.
        ("RULE:[1:$1](an)~RULE:[1:other]", "anna@OTHER", "other"),
        ("RULE:[1:$1](an.*)", "anna@OTHER", "anna"),
        ("RULE:[1:$1](an|anna)", "anna@OTHER", "anna"),
        ("RULE:[1:$1]()", "anna@OTHER", None),
        (r"RULE:[1:$1](\w+)", "Ánna@OTHER", None),
        # Replacements.
        ("RULE:[1:$1@$0](.*@OTHER)s/@.*//", "anna@OTHER", "anna"),
        ("RULE:[1:$1@$0](.*@OTHER)s/@.*//", "anna@THIRD", None),
        ("RULE:[1:$1]s/n/N/", "anna@OTHER", "aNna"),
        ("RULE:[1:$1]s/n/N/g", "anna@OTHER", "aNNa"),
        ("RULE:[1:$1]s/x/y/", "anna@OTHER", "anna"),
        ("RULE:[1:$1]s/(a)(n)/$2$1/g", "anna@OTHER", "nana"),
        ("RULE:[1:$1]s/(q)?a/<$1>/g", "anna@OTHER", "<>nn<>"),
        (r"RULE:[1:$1]s/a/\$1/", "anna@OTHER", "$1nna"),
        ("RULE:[1:$1]s/(a)/$12/", "anna@OTHER", "a2nna"),
        ("RULE:[1:$1]s/n*/-/g", "anna@OTHER", "-a--a-"),
        ("RULE:[1:$1]s/^a/B/g", "anna@OTHER", "Bnna"),
        # The case of letters.
        ("RULE:[1:$1]/U", "anna@OTHER", "ANNA"),
        ("RULE:[1:$1]/L", "ANNA@OTHER", "anna"),
        ("RULE:[1:$1]U", "anna@OTHER", "ANNA"),
        ("RULE:[1:$1](A.*)s/N/n//L", "ANNA@OTHER", "anna"),
        ("RULE:[1:$1]s/n/N/g/U", "anna@OTHER", "ANNA"),
        # The first rule that fits wins, and a name that is not short ends the search.
        ("RULE:[1:$1](x.*)~DEFAULT", "anna@SHOP.EXAMPLE", "anna"),
        ("DEFAULT~RULE:[1:$1]/U", "anna@SHOP.EXAMPLE", "anna"),
        ("RULE:[1:$1]/U~DEFAULT", "anna@SHOP.EXAMPLE", "ANNA"),
        ("RULE:[1:$1@$0]~DEFAULT", "anna@SHOP.EXAMPLE", None),
        ("RULE:[2:$1/$2]~DEFAULT", "kafka/host@SHOP.EXAMPLE", None),
        ("RULE:[1:$1]s/.*//~DEFAULT", "anna@SHOP.EXAMPLE", None),
    ],
)
def test_a_principal_gets_its_name(rules: str, principal: str, expected: str | None) -> None:
    assert user(rules, principal) == expected


@pytest.mark.parametrize(
    "principal",
    ["", "anna", "a/b/c@SHOP.EXAMPLE", "a@b@SHOP.EXAMPLE", r"a\@b@SHOP.EXAMPLE", r"a\nb@SHOP.EXAMPLE", "@SHOP.EXAMPLE"],
)
def test_a_principal_of_another_form_is_refused(principal: str) -> None:
    assert user("RULE:[1:$1]~RULE:[2:$1]~DEFAULT", principal) is None


@pytest.mark.parametrize("realm", ["WELLKNOWN:ANONYMOUS", _REALM])
def test_no_rule_gives_a_name_to_the_anonymous_principal(realm: str) -> None:
    assert user("RULE:[2:$1]~RULE:[1:$1]~DEFAULT", f"WELLKNOWN/ANONYMOUS@{realm}") is None
    assert user("RULE:[2:$1]", f"WELLKNOWN/OTHER@{realm}") == "WELLKNOWN"


def test_without_a_default_realm_the_default_rule_fits_nothing() -> None:
    assert user("DEFAULT", "anna@", "") is None
    assert user("DEFAULT~RULE:[1:$1]", "anna@OTHER", "") == "anna"


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        ("RULE", "not a rule"),
        ("default", "not a rule"),
        ("DEFAULT/L", "not a rule"),
        ("RULE:[1:$1", "not a rule"),
        ("RULE:[:$1]", "not a rule"),
        ("RULE:[1:$1]x", "not a rule"),
        ("RULE:[1:$1]s/a/b", "not a rule"),
        ("RULE:[1:$1](*)", "not a regular expression"),
        ("RULE:[1:$1]s/[/b/", "not a regular expression"),
        ("RULE:[1:$2]", r"\$2"),
        ("RULE:[1:$]", r"\$"),
        ("RULE:[1:$1]s/a/$1/", "names a group"),
        ("RULE:[1:$1]s/(a)/$x/", "names a group"),
        ("RULE:[1:$1]s/(a)/${x}/", "names a group"),
    ],
)
def test_a_rule_that_cannot_be_used_is_named_in_one_sentence(rule: str, cause: str) -> None:
    with pytest.raises(InvalidConfigError, match=cause) as caught:
        PrincipalRules([rule], _REALM)
    assert "sasl.kerberos.principal.to.local.rules" in str(caught.value)
    assert "\n" not in str(caught.value)


_PART = st.text("abN.-_$(\\é", max_size=6)


@given(st.lists(_PART, min_size=1, max_size=4), _PART, st.sampled_from([_REALM, "OTHER"]))
def test_default_takes_the_first_part_of_principals_of_its_realm(parts: list[str], rest: str, realm: str) -> None:
    principal = "/".join(parts) + f"@{realm}"
    good = realm == _REALM and len(parts) <= 2 and parts[0] != "" and "\\" not in principal
    assert user("DEFAULT", principal) == (parts[0] if good else None)


@given(st.text("RULE:[]()123$@/sgLU.*+?\\ax", max_size=40), st.text("ab/@\\X", max_size=12))
def test_any_rule_and_any_principal_give_a_short_name_or_are_refused(rule: str, principal: str) -> None:
    for text in (rule, f"RULE:[1:$1]{rule}", f"RULE:[1:$1]s/{rule}", f"RULE:[2:{rule}"):
        try:
            rules = PrincipalRules([text], _REALM)
        except InvalidConfigError:
            continue
        try:
            name = rules.user_of(principal)
        except NoMappingError:
            continue
        assert name
        assert not set(name) & set("/@")
