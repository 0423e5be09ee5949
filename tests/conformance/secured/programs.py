"""The programs of the clients: one process does all cells of a client, a line of JSON for each."""

from __future__ import annotations

import json
import subprocess
import threading
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, Final, NamedTuple

from tests.conformance.secured.cells import Cell, Client
from tests.conformance.secured.place import (
    PLAIN_SECRET,
    PROTOCOLS,
    SCRAM_SECRET,
    STORE_SECRET,
    USERS,
    WRONG_SECRET,
    Place,
    environment,
    user_of,
)
from tests.peers.clients import PROJECT, go_client, node_client, python_client
from tests.peers.java_programs import command_of
from tests.processes.broker.kdc import REALM, SERVICE
from tests.processes.broker.secured import login
from tests.processes.broker.test_kerberos import by_cache, by_key_tab

#: So long a step may take: one that fails for as long as its client tries, and one that succeeds.
FAILING_MS, SUCCEEDING_MS = 4000, 20_000
_FAILING: Final = ("wrong", "expired", "no ACL", "removed")
_CELL_SECONDS: Final = 90.0
_MODULES: Final = {"librdkafka": "confluent_kafka", "kafka-python": "kafka", "aiokafka": "aiokafka"}
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"


class Outcome(NamedTuple):
    """The class of each step, and the client's own words about those that failed."""

    steps: Mapping[str, str]
    errors: Mapping[str, str]


def run(client: Client, cells: Iterable[Cell], place: Place) -> Iterator[tuple[Cell, Outcome]]:
    """The outcomes of a client's cells at a broker."""
    with subprocess.Popen(
        _command(client, place),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=PROJECT,
        env=environment(place.files),
    ) as process:
        try:
            for cell in cells:
                yield cell, _outcome(process, cell, place)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _outcome(process: subprocess.Popen[str], cell: Cell, place: Place) -> Outcome:
    assert process.stdin is not None
    assert process.stdout is not None
    watch = threading.Timer(_CELL_SECONDS, process.kill)
    watch.start()
    try:
        _say(process.stdin, asked(cell, place))
        answer = _answer(process.stdout, cell)
        if answer.get("held"):
            place.change(cell)
            _say(process.stdin, {"to_end": cell.condition != "renewed"})
            answer = _answer(process.stdout, cell)
    finally:
        watch.cancel()
    return Outcome(answer["steps"], answer["errors"])


def _say(to: IO[str], what: Mapping[str, Any]) -> None:
    to.write(json.dumps(what) + "\n")
    to.flush()


def _answer(from_it: IO[str], cell: Cell) -> dict[str, Any]:
    line = from_it.readline()
    if not line:
        raise RuntimeError(f"{cell.id}: the client's program has ended")
    answer: dict[str, Any] = json.loads(line)
    assert answer["id"] == cell.id
    return answer


def _command(client: Client, place: Place) -> list[str]:
    if client.kind == "python":
        return [*python_client("secured_cells"), _MODULES[client.name]]
    if client.kind == "go":
        return go_client()
    if client.kind == "node":
        return node_client("secured.js")
    release = client.name.split()[1]
    java, *words = command_of(release, "SecuredClient", heap="256m", log_level="ERROR")
    tokens = ",".join(place.files.token(name).as_uri() for name in ("right", "wrong", "expired"))
    options = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens}"]
    if place.files.kdc is not None:
        options.append(f"-Djava.security.krb5.conf={place.files.kdc.configuration}")
    if release < "2":
        inside = "java.security.jgss/sun.security.krb5=ALL-UNNAMED"
        options += ["--add-opens", inside, "--add-exports", inside]
    return [java, *options, *words]


def asked(cell: Cell, place: Place) -> dict[str, Any]:
    """A cell as its program takes it."""
    files, user = place.files, user_of(cell)
    secret = _secret(cell, place)
    if cell.is_token:
        user = place.tokens[cell.condition].token.token_id
    cert = {"wrong": "other-client", "expired": "old-client"}.get(cell.condition, "client")
    found = {
        "id": cell.id,
        "bootstrap": place.address(_listener(cell)),
        "protocol": PROTOCOLS[_listener(cell)],
        "ca": str(files.pem(_authority(cell))),
        "cert": str(files.pem(cert)) if cell.login == "mTLS" else "",
        "mechanism": "" if "TLS" in cell.login else cell.login,
        "user": user,
        "secret": secret,
        "isToken": cell.is_token,
        "topic": cell.topic,
        "group": cell.group,
        "held": cell.is_held,
        "step_ms": FAILING_MS if cell.condition in _FAILING else SUCCEEDING_MS,
    }
    if cell.client.kind == "java":
        found["properties"] = _properties(cell, place, found, cert)
    if cell.login == "GSSAPI":
        assert files.kdc is not None
        found |= {
            "service": _service(cell),
            "realm": REALM,
            "krb5": str(files.kdc.configuration),
            "keyTab": str(files.key_tabs[user]),
            "cache": str(files.old_tickets) if cell.condition == "expired" else "",
        }
    return found


def _listener(cell: Cell) -> str:
    if cell.is_short:
        return "SHORT"
    if cell.login == "TLS":
        return "OLD" if cell.condition == "expired" else "TLS"
    return {"mTLS": "MTLS", "GSSAPI": "KERBEROS", "SCRAM-SHA-256": "CLEAR"}.get(cell.login, "LOGIN")


def _authority(cell: Cell) -> str:
    return "other-ca" if (cell.login, cell.condition) == ("TLS", "wrong") else "ca"


def _service(cell: Cell) -> str:
    return "web" if cell.condition == "wrong" else SERVICE


def _secret(cell: Cell, place: Place) -> str:
    if cell.login == "OAUTHBEARER":
        name = cell.condition if cell.condition in ("wrong", "expired") else "right"
        return place.files.token(name).read_text()
    if cell.is_token:
        return b64encode(place.tokens[cell.condition].hmac).decode()
    if cell.condition == "wrong":
        return WRONG_SECRET
    return PLAIN_SECRET if cell.login == "PLAIN" else SCRAM_SECRET


def _properties(cell: Cell, place: Place, found: Mapping[str, Any], cert: str) -> dict[str, str]:
    """The settings of a Java client."""
    files = place.files
    lines = {"bootstrap.servers": str(found["bootstrap"]), "security.protocol": str(found["protocol"])}
    if "SSL" in found["protocol"]:
        lines |= {
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(files.store(_authority(cell))),
            "ssl.truststore.password": STORE_SECRET,
            "ssl.endpoint.identification.algorithm": "https",
        }
    if cell.login == "mTLS":
        lines |= {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(files.store(cert)),
            "ssl.keystore.password": STORE_SECRET,
            "ssl.key.password": STORE_SECRET,
        }
    if cell.login == "GSSAPI":
        user = USERS["GSSAPI"]
        by = by_key_tab(files.key_tabs[user], f"{user}@{REALM}")
        if cell.condition == "expired":
            by = by_cache(files.old_tickets).rstrip(";") + " doNotPrompt=true;"
        lines |= {
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": _service(cell),
            "sasl.jaas.config": by,
        }
    elif cell.login == "OAUTHBEARER":
        name = cell.condition if cell.condition in ("wrong", "expired") else "right"
        package = _OAUTH if cell.client.name >= "java 4" else f"{_OAUTH}.secured"
        lines |= {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            "sasl.oauthbearer.token.endpoint.url": files.token(name).as_uri(),
            "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
        }
    elif found["mechanism"]:
        lines |= login(str(found["user"]), str(found["secret"]), cell.login)
        if cell.is_token:
            lines["sasl.jaas.config"] = lines["sasl.jaas.config"].rstrip(";") + " tokenauth=true;"
    return lines
