"""Java's options that Kafka's scripts take from the environment variable KAFKA_OPTS, such as
`-Djava.security.auth.login.config=/etc/kafka/jaas.conf`. jesenska reads the few of them that name logins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jesenska.base.errors import InvalidConfigError
from jesenska.security.jaas import Login, parse_login_file

#: The option that names the JAAS file.
LOGIN_FILE: Final = "java.security.auth.login.config"


def java_option(environment: Mapping[str, str], name: str) -> str | None:
    """Returns the value of the option -Dname=value in KAFKA_OPTS, or None if the option is not given. If an option is
    given several times, the last value counts, as in Java."""
    found = re.findall(rf"(?:^|\s)-D{re.escape(name)}=(\S+)", environment.get("KAFKA_OPTS", ""))
    return found[-1] if found else None


def logins_of(environment: Mapping[str, str]) -> dict[str, list[Login]]:
    """Returns the logins in the JAAS file that KAFKA_OPTS names, by the names of its entries. Returns an empty dict if
    no file is named. Raises InvalidConfigError with one sentence if the file cannot be used."""
    path = java_option(environment, LOGIN_FILE)
    return {} if path is None else logins_in(path)


def logins_in(path: str | Path) -> dict[str, list[Login]]:
    """Returns the logins in a JAAS file, by the names of its entries. Raises InvalidConfigError with one sentence if
    the file cannot be used."""
    try:
        return parse_login_file(Path(path).read_text())
    except InvalidConfigError as error:
        raise InvalidConfigError(f"The JAAS file {path}: {error}") from error
    except OSError as error:
        raise InvalidConfigError(f"The JAAS file {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InvalidConfigError(f"The JAAS file {path} is not a text in UTF-8.") from error
