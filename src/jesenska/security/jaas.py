"""Reads logins in the format of Java's JAAS configuration. Such logins are in the setting `sasl.jaas.config`, and in
the file that `java.security.auth.login.config` names.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="secret" user_anna="x";

    KafkaServer {                    a file has named entries
      ...LoginModule required ...;
    };

The name of the login module's Java class determines the mechanism; no class is loaded. An option is `name=value`. The
value may be in quotes; a quote inside of it has a backslash before it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from jesenska.base.errors import InvalidConfigError

#: The maximum length in characters of an accepted JAAS text; usual texts have a few lines.
_MAX_CHARACTERS: Final = 1_000_000
_TOKEN = re.compile(
    r'\s+|//[^\n]*|/\*.*?\*/|#[^\n]*|(?P<quoted>"(?:\\.|[^"\\])*")|(?P<mark>[{};=])|(?P<word>[^\s{};="]+)', re.S
)
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": "OAUTHBEARER",
    "com.sun.security.auth.module.Krb5LoginModule": "GSSAPI",
    "org.apache.zookeeper.server.auth.DigestLoginModule": "DIGEST-MD5",
}


class Login(NamedTuple):
    """One login module with its options. `mechanism` is PLAIN, SCRAM, OAUTHBEARER, GSSAPI or DIGEST-MD5, or empty for
    an unknown Java class."""

    mechanism: str
    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Login({self.module})"

    def required(self, name: str) -> str:
        """Returns the value of an option. Raises InvalidConfigError if the option is missing."""
        value = self.options.get(name)
        if value is None:
            raise InvalidConfigError(f"The JAAS login of {self.module} has no option {name}.")
        return value

    def users(self) -> dict[str, str]:
        """Returns the passwords by user, from the options user_NAME="PASSWORD" of a server's PLAIN or
        DIGEST-MD5 login."""
        return {name[5:]: value for name, value in self.options.items() if name.startswith("user_") and name[5:]}


def parse_login(text: str) -> Login:
    """Returns the single login of `sasl.jaas.config`. Raises InvalidConfigError with one sentence, which contains no
    secret, if the text is invalid."""
    tokens = _tokens(text)
    logins = _logins(tokens)
    if tokens or len(logins) != 1:
        raise InvalidConfigError("sasl.jaas.config must have exactly one login module, which ends with a semicolon.")
    return logins[0]


def parse_login_file(text: str) -> dict[str, list[Login]]:
    """Returns the logins of a JAAS file, by the names of its entries."""
    tokens = _tokens(text)
    found: dict[str, list[Login]] = {}
    while tokens:
        name = tokens.pop(0)
        _expect(tokens, "{")
        found[name] = _logins(tokens)
        _expect(tokens, "}")
        _expect(tokens, ";")
    return found


def _tokens(text: str) -> list[str]:
    """Splits a text into its tokens. The token of a quoted value begins with the quote, so that the value ";" in
    quotes is not mistaken for the mark ";"."""
    if len(text) > _MAX_CHARACTERS:
        raise InvalidConfigError("A JAAS configuration is too long.")
    tokens: list[str] = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise InvalidConfigError("A JAAS configuration has a quote that does not end.")
        position = found.end()
        if found["quoted"] is not None:
            tokens.append('"' + re.sub(r"\\(.)", r"\1", found["quoted"][1:-1], flags=re.S))
        elif found["mark"] or found["word"]:
            tokens.append(found["mark"] or found["word"])
    return tokens


def _logins(tokens: list[str]) -> list[Login]:
    """Removes all logins at the beginning of the tokens, and returns them."""
    logins = []
    while len(tokens) > 1 and tokens[0] not in "{};=":
        module, flag = tokens.pop(0), tokens.pop(0)
        if flag.lower() not in _FLAGS:
            raise InvalidConfigError(f"The JAAS login of {module} has no control flag: write {module} required … ;")
        options: dict[str, str] = {}
        while tokens and tokens[0] != ";":
            name = tokens.pop(0)
            _expect(tokens, "=")
            if not tokens:
                break
            options[name] = tokens.pop(0).removeprefix('"')
        _expect(tokens, ";")
        logins.append(Login(_MODULES.get(module, ""), module, options))
    return logins


def _expect(tokens: list[str], mark: str) -> None:
    if not tokens or tokens.pop(0) != mark:
        raise InvalidConfigError(f"A JAAS configuration lacks {mark!r}.")
