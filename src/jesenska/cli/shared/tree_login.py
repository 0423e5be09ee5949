"""The login of brokers and tools to the metadata tree of `jesenska up -n N`. It is in a file of the tree's directory,
which only its owner can read: a JAAS file with the entry Server for the tree, and the entry Client for brokers and
tools, also for those of Apache Kafka.

The password is random, and is made at the first start. To replace it, stop the brokers and remove the file."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jesenska.base.errors import JesenskaError

if TYPE_CHECKING:
    from jesenska.metadata.zookeeper.server.guard import Guard

logger = logging.getLogger(__name__)

LOGIN_FILE: Final = "jesenska-tree.jaas"
_USER: Final = "kafka"
_PASSWORD_BYTES: Final = 32
_TEXT: Final = """\
// The login to the metadata tree in this directory: whoever can read this file may change the whole cluster.
// KAFKA_OPTS="-Djava.security.auth.login.config=THIS FILE" lets a tool or another broker use it.
Server {{
  {module} required user_{user}="{password}";
}};
Client {{
  {module} required username="{user}" password="{password}";
}};
"""


def login_file_of(directory: Path) -> str | None:
    """Returns the path of the file with the login to the tree in a directory. Returns None if the tree has none."""
    path = directory / LOGIN_FILE
    return str(path) if path.exists() else None


def guard_of_directory(directory: Path) -> Guard:
    """Returns a guard that admits only clients that log in as the directory's file says. Makes the file if it is
    missing. Raises JesenskaError with one sentence if the file cannot be made or used."""
    from jesenska.metadata.zookeeper.server.guard import Guard
    from jesenska.metadata.zookeeper.server.guard_settings import users_in
    from jesenska.security.java_options import logins_in

    path = directory / LOGIN_FILE
    try:
        _make(path)
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            logger.warning(
                "%s could be read by other users and is now private. If another user may have read the password, "
                "remove the file: the next start makes a new password",
                path,
            )
            path.chmod(0o600)
    except OSError as error:
        raise JesenskaError(
            f"The login to the tree, {path}, cannot be made ({error.strerror}): check the directory's permissions."
        ) from error
    return Guard(users_in(logins_in(path)), required=frozenset({"sasl"}))


def _make(path: Path) -> None:
    """Makes the file, whole or not at all, if it is missing."""
    if path.exists():
        return
    from jesenska.metadata.zookeeper.shared_settings import DIGEST_MODULE

    text = _TEXT.format(module=DIGEST_MODULE, user=_USER, password=os.urandom(_PASSWORD_BYTES).hex())
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    new.rename(path)
