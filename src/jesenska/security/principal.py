"""Principals (the users that send requests), and the rules that convert the names in certificates to user names.

A principal is a type and a name, written `User:anna`. As with Kafka's default principal builder, clients always have
the type `User`. A client that has not authenticated is `User:ANONYMOUS`.

`ssl.principal.mapping.rules` is a list of rules that make a user name from a certificate's distinguished name:

    RULE:^CN=([^,]+),.*$/$1/L, DEFAULT
    pattern     must match the whole name; a slash in it is written \\/
    replacement $1 is the first group; L or U after the last slash converts to lower or upper case
    DEFAULT     the distinguished name is used unchanged

The first rule that matches is used."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from jesenska.base.errors import InvalidConfigError

USER: Final = "User"


class Principal(NamedTuple):
    """An authenticated user. Two principals are equal if their type and name are equal."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")


def parse_principal(text: str) -> Principal:
    """Returns the principal of a text such as `User:anna`. Raises InvalidConfigError if the text is not TYPE:NAME."""
    kind, colon, name = text.strip().partition(":")
    if not colon or not kind or not name:
        raise InvalidConfigError(f"{text.strip()!r} is not a principal: write TYPE:NAME, as in User:anna.")
    return Principal(kind, name)


def parse_super_users(text: str | None) -> frozenset[Principal]:
    """Returns the principals of the setting `super.users`, such as User:anna;User:CN=broker,O=shop. The principals are
    separated by semicolons, because names from certificates contain commas."""
    return frozenset(parse_principal(item) for item in (text or "").split(";") if item.strip())


class MappingRule(NamedTuple):
    """A rule of ssl.principal.mapping.rules. If `pattern` is None (DEFAULT), the name is left unchanged."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        """Returns the user name that the rule makes from the distinguished name of a certificate; None if the rule
        does not match."""
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        made = _GROUP.sub(lambda group: found[int(group[1])] or "", self.replacement)
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made


_GROUP = re.compile(r"\$(\d)")
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|(DEFAULT)")
#: The maximum length in characters of ssl.principal.mapping.rules. The limit is a precaution, because the patterns are
#: matched with names that clients send.
_RULES_MAX_CHARACTERS: Final = 10_000


class NoMappingError(Exception):
    """Raised when no rule converts the name in a certificate, or a Kerberos principal, to a user name."""


def parse_mapping_rules(text: str | None) -> tuple[MappingRule, ...]:
    """Returns the rules of ssl.principal.mapping.rules in order. Raises InvalidConfigError that quotes the invalid
    rule."""
    rest = (text or "DEFAULT").strip()
    if len(rest) > _RULES_MAX_CHARACTERS:
        raise InvalidConfigError(f"ssl.principal.mapping.rules is longer than {_RULES_MAX_CHARACTERS} characters.")
    rules = []
    while rest:
        found = _RULE.match(rest)
        if found is None:
            raise InvalidConfigError(
                f"Invalid rule: `{rest}`, unmatched substring: write DEFAULT or RULE:pattern/replacement/ with L or U "
                "after it, in ssl.principal.mapping.rules."
            )
        rules.append(_rule(found))
        rest = rest[found.end() :].strip()
        if rest:
            if not rest.startswith(","):
                raise InvalidConfigError(f"ssl.principal.mapping.rules: write a comma before {rest!r}.")
            rest = rest[1:].strip()
    return tuple(rules)


def _rule(found: re.Match[str]) -> MappingRule:
    if found[4]:
        return MappingRule(None, "", "")
    pattern, replacement = (re.sub(r"\\/", "/", part) for part in (found[1], found[2]))
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidConfigError(
            f"ssl.principal.mapping.rules: {pattern!r} is not a regular expression: {error}."
        ) from error
    groups = [int(group) for group in _GROUP.findall(replacement)]
    if any(group > compiled.groups for group in groups):
        raise InvalidConfigError(f"ssl.principal.mapping.rules: {pattern!r} has no group {max(groups)}.")
    return MappingRule(compiled, replacement, found[3])


def mapped_name(name: str, rules: Sequence[MappingRule]) -> str:
    """Returns the user's name for a certificate's distinguished name, by the first rule that matches. Raises
    NoMappingError if no rule matches."""
    for rule in rules:
        made = rule.apply(name)
        if made is not None:
            return made
    raise NoMappingError(f"no rule of ssl.principal.mapping.rules matches {name!r}")
