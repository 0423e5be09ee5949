"""The directory of `jesenska init DIR --secure`, from which `jesenska up --secured DIR` starts brokers. The brokers
have the settings of its configuration file: TLS, logins and access rules.

    DIR/config/server.properties    the settings of every broker, with the login of the administrator
    DIR/config/client.properties    the settings of the administrator's clients
    DIR/data/kafka-logs             the data of a single broker
    DIR/data/tree, broker-K         the metadata tree and the data of several brokers

All brokers listen at the hosts of the certificate, at consecutive ports."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from jesenska.base.errors import InvalidConfigError, JesenskaError
from jesenska.cli.shared.configuration import broker_config
from jesenska.config.listeners import listeners_of

_PROTOCOL = "SASL_SSL"


class SecuredDirectory(NamedTuple):
    """The files of a secured directory, and the address of its first broker for clients."""

    file: str
    client_file: str
    data: Path
    host: str
    port: int

    @property
    def data_of_one(self) -> Path:
        """Returns the log directory of a single broker."""
        return self.data / "kafka-logs"

    def listener(self, port: int) -> dict[str, str]:
        """Returns the settings of a broker that listens at this port."""
        return {"listeners": f"{_PROTOCOL}://:{port}", "advertised.listeners": f"{_PROTOCOL}://{self.host}:{port}"}


def secured_directory(path: str) -> SecuredDirectory:
    """Returns the secured directory at a path. Raises JesenskaError with one sentence if it was not made by
    `jesenska init --secure`, or was changed so that several brokers cannot use it."""
    root = Path(path).absolute()
    file = root / "config" / "server.properties"
    if not file.exists():
        raise JesenskaError(f"{path} has no config/server.properties: jesenska init {path} --secure makes one.")
    config = broker_config(str(file), environment={}, warns=False)
    try:
        listeners = listeners_of(config)
    except InvalidConfigError as error:
        raise JesenskaError(f"{file} cannot be used: {error}") from error
    if len(listeners.advertised) != 1 or listeners.advertised[0].protocol != _PROTOCOL:
        raise JesenskaError(
            f"{file} does not have the one listener {_PROTOCOL} that jesenska init --secure makes: start its broker "
            f"with kafka-server-start {file}."
        )
    advertised = listeners.advertised[0]
    return SecuredDirectory(
        str(file), str(root / "config" / "client.properties"), root / "data", advertised.host, advertised.port
    )
