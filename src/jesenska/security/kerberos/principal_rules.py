"""The rules of sasl.kerberos.principal.to.local.rules, which convert a Kerberos principal to a user name.

    anna@SHOP.EXAMPLE         $1 is anna, $0 is SHOP.EXAMPLE
    kafka/host@SHOP.EXAMPLE   $1 is kafka, $2 is host, $0 is SHOP.EXAMPLE

    DEFAULT                                             $1, if the realm is the default realm
    RULE:[2:$1@$0](kafka@.*)s/@.*//L                    each part after [...] is optional
         [2:      principals with two components        $1@$0]   the name to begin with
         (kafka@.*)  the whole name must match              s/@.*//  replaces the first match; with g all matches
         L or U   converts to lower or upper case; without s/.../.../ write a slash before it

The first rule that matches is used. A principal is refused if no rule matches, if it has three components, or if it is
the anonymous principal. It is also refused if the resulting name is empty, or contains a slash or an @. In a
replacement $1 is a group of the pattern, and a backslash quotes the character after it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from jesenska.base.errors import InvalidConfigError
from jesenska.security.principal import NoMappingError

SETTING: Final = "sasl.kerberos.principal.to.local.rules"
_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(
    r"RULE:\[(?P<count>[0-9]+):(?P<format>[^\]]*)\]"
    r"(?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<all>g?))?"
    r"/?(?P<case>[LU]?)"
)
_DEFAULT: Final = "DEFAULT"
#: The components of the anonymous principal, which a client uses that does not reveal its identity (RFC 8062).
_ANONYMOUS: Final = ("WELLKNOWN", "ANONYMOUS")
_PARAMETER = re.compile(r"\$([0-9]*)")
#: A part of a replacement: a quoted character, a group's number or name, a lone mark, or other text.
_PIECE = re.compile(r"\\(?P<quoted>.)|\$(?P<number>[0-9]+)|\$\{(?P<name>\w+)\}|(?P<mark>[\\$])|(?P<text>[^\\$]+)", re.S)
_NOT_SHORT = re.compile(r"[/@]")
#: The library writes unusual characters of a principal with a backslash.
_UNUSUAL: Final = "\\"


class _Rule(NamedTuple):
    """One rule. It matches principals with this number of `components`."""

    components: int
    format: str
    match: re.Pattern[str] | None
    pattern: re.Pattern[str] | None
    replacement: tuple[str | int, ...]
    is_for_all: bool
    case: str

    def apply(self, parameters: Sequence[str]) -> str | None:
        """Returns the user name that the rule makes; None if the rule does not match. `parameters` are the realm and
        the components of the principal."""
        if len(parameters) - 1 != self.components:
            return None
        name = _PARAMETER.sub(lambda found: parameters[int(found[1])], self.format)
        if self.match is not None and self.match.fullmatch(name) is None:
            return None
        if self.pattern is not None:
            name = self.pattern.sub(self._replaced, name, count=0 if self.is_for_all else 1)
        return name

    def _replaced(self, found: re.Match[str]) -> str:
        return "".join(piece if isinstance(piece, str) else found[piece] or "" for piece in self.replacement)


class PrincipalRules:
    """The rules of one listener. The constructor raises InvalidConfigError, with a message of one sentence, if a rule
    is invalid."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        self._default_realm = default_realm
        self._rules = tuple(None if rule == _DEFAULT else _parsed(rule) for rule in map(str.strip, rules))

    def user_of(self, principal: str) -> str:
        """Returns the user name for a principal. Raises NoMappingError if the principal is refused."""
        found = _PRINCIPAL.fullmatch(principal)
        if found is None or _UNUSUAL in principal:
            raise NoMappingError(f"{principal!r} is not a principal of one or two components")
        if (found[1], found[2]) == _ANONYMOUS:
            raise NoMappingError("an anonymous principal")
        parameters = [found[3], found[1], *([] if found[2] is None else [found[2]])]
        for rule in self._rules:
            name = self._default(parameters) if rule is None else rule.apply(parameters)
            if name is not None:
                if not name or _NOT_SHORT.search(name):
                    raise NoMappingError(f"a rule of {SETTING} makes {name!r} of {principal!r}, which is not short")
                case = "" if rule is None else rule.case
                return name.lower() if case == "L" else name.upper() if case == "U" else name
        raise NoMappingError(f"no rule of {SETTING} matches {principal!r}")

    def _default(self, parameters: Sequence[str]) -> str | None:
        return parameters[1] if self._default_realm and parameters[0] == self._default_realm else None


def _parsed(text: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise InvalidConfigError(
            f"{SETTING}: {text!r} is not a rule: write DEFAULT or RULE:[n:format](regex)s/pattern/replacement/."
        )
    count = int(found["count"])
    for number in _PARAMETER.findall(found["format"]):
        if not number or int(number) > count:
            raise InvalidConfigError(f"{SETTING}: ${number} in {text!r} is not one of $0 to ${count}.")
    match, pattern = (None if found[name] is None else _compiled(found[name], text) for name in ("match", "pattern"))
    replacement = () if pattern is None else _pieces(found["replacement"], pattern, text)
    return _Rule(count, found["format"], match, pattern, replacement, bool(found["all"]), found["case"])


def _compiled(pattern: str, rule: str) -> re.Pattern[str]:
    try:
        # As in Java, \w and \d match only ASCII characters.
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise InvalidConfigError(f"{SETTING}: {pattern!r} in {rule!r} is not a regular expression: {error}.") from error


def _pieces(replacement: str, pattern: re.Pattern[str], rule: str) -> tuple[str | int, ...]:
    """Returns the parts of a replacement: texts, and numbers of groups. As in Java, if there is no group with a number
    of several digits, the last digits are text after the group's number."""
    pieces: list[str | int] = []
    for found in _PIECE.finditer(replacement):
        if found["text"] is not None or found["quoted"] is not None:
            pieces.append(found["text"] or found["quoted"])
            continue
        group, digits = pattern.groupindex.get(found["name"] or "", -1), found["number"] or ""
        for length in range(len(digits), 0, -1):
            if int(digits[:length]) <= pattern.groups:
                group, digits = int(digits[:length]), digits[length:]
                break
        if group < 0:
            raise InvalidConfigError(f"{SETTING}: the replacement in {rule!r} names a group that is not there.")
        pieces += [group, digits] if digits else [group]
    return tuple(pieces)
