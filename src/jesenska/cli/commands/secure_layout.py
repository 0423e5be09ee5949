"""`jesenska init DIR --secure`: makes the files of a broker with TLS, logins and access rules, and of clients that can
connect to it.

    security/ca.pem, ca.key         a certificate authority; the key signs certificates (`jesenska cert`)
    security/broker-0.pem           the broker's key and certificate, for the hosts that were named
    config/server.properties        one listener, SASL_SSL, with the user admin and a random password
    config/client.properties        the login of admin, for our tools and for Java
    config/librdkafka.properties    the login of admin, for programs with librdkafka

Files with a key or a password can be read only by their owner. Existing files are not changed. If the certificate
authority already exists, it is used, so the certificates that it has signed remain valid."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.configuration import broker_config
from jesenska.config.listeners import listeners_of
from jesenska.security.authority import hosts_of, new_authority, read_authority, write_authority, write_secret

ADMIN: Final = "admin"
#: A name, or an address of IPv4 or IPv6.
_HOST: Final = re.compile(r"[A-Za-z0-9_.*-]+|[0-9A-Fa-f:.]+")
_LETTERS: Final = string.ascii_letters + string.digits
_PASSWORD_CHARACTERS: Final = 24

_SERVER = """\
# A broker with TLS and logins: kafka-server-start {config}/server.properties
# All settings and their effects: docs/settings.md. Security step by step: docs/security.md.

# The broker's id; each broker of a cluster has its own.
broker.id=0

# The address at which the broker listens, and the address that clients use.
listeners=SASL_SSL://:{port}
advertised.listeners=SASL_SSL://{host}:{port}
security.inter.broker.protocol=SASL_SSL

# The broker's key and certificate, and the certificate authority. A changed file is used at once.
ssl.keystore.type=PEM
ssl.keystore.location={security}/broker-0.pem
ssl.truststore.type=PEM
ssl.truststore.location={security}/ca.pem

# The administrator logs in with PLAIN. Other users have passwords of their own, which kafka-configs sets:
#   kafka-configs --bootstrap-server {host}:{port} --command-config {config}/client.properties \\
#     --alter --entity-type users --entity-name anna --add-config 'SCRAM-SHA-512=[password=...]'
sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="{admin}" password="{password}" user_{admin}="{password}";

# The administrator is allowed all operations. Other users are allowed what access rules (ACLs) allow:
#   kafka-acls --bootstrap-server {host}:{port} --command-config {config}/client.properties \\
#     --add --allow-principal User:anna --operation Read --operation Write --topic orders
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:{admin}

# The directory for records, and for the broker's own metadata.
log.dirs={data}

# A cluster with a single broker can only have one replica of each partition.
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""

_CLIENT = """\
# The administrator's login, for our tools and for Java: --command-config, --producer.config, --consumer.config.
bootstrap.servers={host}:{port}
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="{admin}" password="{password}";
ssl.truststore.type=PEM
ssl.truststore.location={security}/ca.pem
"""

_LIBRDKAFKA = """\
# The administrator's login, for kcat (-F) and other programs with librdkafka.
bootstrap.servers={host}:{port}
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.username={admin}
sasl.password={password}
ssl.ca.location={security}/ca.pem
"""

_SECRETS = {
    "server.properties": _SERVER,
    "client.properties": _CLIENT,
    "librdkafka.properties": _LIBRDKAFKA,
}


def lay_out_secured(directory: Path, hosts: Sequence[str], port: int) -> Iterator[tuple[Path, bool]]:
    """Creates the files that are missing. Yields each file of the layout, and True if this call has created it. The
    broker advertises the first host of `hosts` to clients. Raises JesenskaError with one sentence if a file cannot be
    written."""
    root = directory.absolute()
    security, config = root / "security", root / "config"
    values = {
        "admin": ADMIN,
        "config": str(config),
        "data": str(root / "data" / "kafka-logs"),
        "host": hosts[0],
        "password": "".join(secrets.choice(_LETTERS) for _ in range(_PASSWORD_CHARACTERS)),
        "port": str(port),
        "security": str(security),
    }
    for host in hosts:
        if _HOST.fullmatch(host) is None:
            raise JesenskaError(f"{host!r} is not a host: write a name such as kafka.example, or an IP address.")
    try:
        security.mkdir(parents=True, exist_ok=True)
        config.mkdir(parents=True, exist_ok=True)
        # Records, and the users' keys in the metadata tree, are for the owner only.
        (root / "data").mkdir(mode=0o700, exist_ok=True)
        if is_new := not (security / "ca.pem").exists():
            write_authority(new_authority("jesenska's certificate authority", datetime.now(UTC)), security)
        yield security / "ca.pem", is_new
        yield _certificate(directory, "broker-0", hosts)
        known = [name for name in _SECRETS if (config / name).exists()]
        if known and len(known) < len(_SECRETS):
            raise JesenskaError(
                f"{config} has {' and '.join(known)} already: remove them, or name another directory. A password is in "
                "all of these files or in none."
            )
        for name, text in _SECRETS.items():
            if not known:
                write_secret(config / name, text.format_map(values))
            yield config / name, not known
    except OSError as error:
        raise JesenskaError(
            f"{error.filename or directory} cannot be written ({error.strerror}): name another directory."
        ) from error


def refuse_other_address(directory: Path, host: str | None, port: int | None) -> None:
    """Raises JesenskaError with one sentence if the directory already has a configuration with another host or port
    for clients. None stands for a host or port that was not named."""
    file = directory / "config" / "server.properties"
    if not file.exists():
        return
    known = listeners_of(broker_config(str(file), environment={}, warns=False)).advertised[0]
    if (host or known.host, port or known.port) != (known.host, known.port):
        raise JesenskaError(
            f"{file} has the address {known.host}:{known.port} already and is not changed: correct listeners and "
            f"advertised.listeners in it, or name another directory. jesenska cert {directory} broker-0 --host "
            "NAME makes a certificate for another host."
        )


def sign(directory: Path, name: str, hosts: Sequence[str]) -> Path:
    """Makes a new key and certificate, and writes them to `security/NAME.pem`. An older file of this name is replaced.
    For a client's certificate, `hosts` is empty. If no hosts are given, the new certificate of a broker keeps the
    hosts of the old one."""
    if not name or "/" in name or name.startswith("."):
        raise JesenskaError(f"{name!r} cannot be a certificate's name: it is the name of its file, too.")
    security = directory.absolute() / "security"
    path = security / f"{name}.pem"
    if not hosts and path.exists():
        hosts = hosts_of(path.read_bytes())
    temporary = security / f".{name}.pem.new"
    write_secret(temporary, read_authority(security).issue(name, hosts, datetime.now(UTC)))
    # The file is replaced atomically, because a broker reads it again when it changes.
    temporary.replace(path)
    return path


def _certificate(directory: Path, name: str, hosts: Sequence[str]) -> tuple[Path, bool]:
    path = directory.absolute() / "security" / f"{name}.pem"
    if path.exists():
        return path, False
    return sign(directory, name, hosts), True
