"""Handshakes of TLS and messages of SASL that are cut, changed, mixed and forged: the broker closes the connection,
forgets it, lets nobody in, and serves the others. A million by a command:

    python -m tests.processes.fuzz.logins.attack --logins 1000000"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from jesenska.broker.server import Broker
from jesenska.security.sasl import plain_message
from jesenska.security.scram import ScramClient
from jesenska.wire.codec import encode
from jesenska.wire.headers import request_head
from jesenska.wire.language import Message
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from jesenska.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from jesenska.wire.registry import APIS
from tests.processes.broker.secured import ANNA_SECRET, broker_settings, cluster_at, login, secured_broker
from tests.processes.fuzz.logins.attack import GROWTH_MAX_MB, attack
from tests.profiles import rounds

_EACH = 1_000
LOGINS = rounds(quick=2_000, ci=10_000, everything=100_000)
#: The bystanders' 99th percentile under attack, on a machine whose processors are all busy with the attack.
_SLOWEST_P99_MS = 250.0
_AT_ONCE = 20


def _hello() -> bytes:
    """What a client of TLS sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def _frame(request: Message, version: int) -> bytes:
    api = APIS[request.api_key]
    head = request_head(api.key, version, 1, "x", api.request_header_version(version))
    body = bytes(head) + encode(request, version)
    return len(body).to_bytes(4, "big") + body


def _exchanges() -> list[bytes]:
    """Whole exchanges of each mechanism, as far as a client can send them without an answer."""
    found = []
    for mechanism, message in (
        ("PLAIN", plain_message("anna", "x")),
        ("SCRAM-SHA-256", ScramClient("SCRAM-SHA-256", "anna", "x", "nonce").first()),
    ):
        first = _frame(SaslHandshakeRequest(mechanism=mechanism), 1)
        found.append(first + _frame(SaslAuthenticateRequest(auth_bytes=message), 1))
        bare = len(message).to_bytes(4, "big") + message
        found.append(_frame(SaslHandshakeRequest(mechanism=mechanism), 0) + bare + bare)
    return found


def _changed(random: Random, data: bytes) -> bytes:
    """The bytes with some changed, left out, or doubled."""
    made = bytearray(data)
    for _ in range(random.randint(0, 4)):
        if not made:
            break
        place = random.randrange(len(made))
        kind = random.randrange(4)
        if kind == 0:
            made[place] = random.randrange(256)
        elif kind == 1:
            del made[place : place + random.randint(1, 40)]
        elif kind == 2:
            made[place:place] = random.randbytes(random.randint(1, 40))
        else:
            made[place:place] = made[place : place + random.randint(1, 200)]
    return bytes(made[: random.randrange(len(made) + 1)] if made and random.random() < 0.2 else made)


async def _sent(broker: Broker, listener: str, data: bytes) -> None:
    """Sends it and ends; what comes is read to the end."""
    host, port = broker.endpoint_for(listener)
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(data)
        writer.write_eof()
        await reader.read()
    except ConnectionError:
        pass
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("listener", "inputs"), [("SSL", lambda: [_hello()]), ("SASL_PLAINTEXT", _exchanges)], ids=["TLS", "SASL"]
)
def test_hostile_logins_leave_the_broker_serving(
    tmp_path: Path, listener: str, inputs: Callable[[], list[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    random, known = Random(20261129), inputs()

    async def main() -> None:
        async with asyncio.timeout(110), secured_broker(broker_settings(tmp_path)) as broker:
            for _ in range(_EACH // _AT_ONCE):
                data = [_changed(random, random.choice(known)) for _ in range(_AT_ONCE)]
                await asyncio.gather(*(_sent(broker, listener, item) for item in data))
            async with cluster_at(broker, "SASL_SSL", login("anna", ANNA_SECRET)) as cluster:
                await cluster.topics()
            while len(broker.dispatcher.connections) > 1:
                await asyncio.sleep(0)

    with caplog.at_level(logging.INFO):
        asyncio.run(main())
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.timeout(120 + LOGINS // 100)
def test_hostile_logins_let_nobody_in_and_harm_nobody(tmp_path: Path) -> None:
    found = attack(tmp_path, LOGINS)
    print("\n" + "\n".join(found.lines()))
    assert found.wrong == []
    assert found.tracebacks == []
    assert found.counts["right: let in"] > 0
    assert found.counts["TLS with certificate: let in"] > 0
    assert found.attacked.figures["written"] > 0
    assert found.attacked.figures["written p99"] < _SLOWEST_P99_MS
    assert found.attacked.figures["read p99"] < _SLOWEST_P99_MS
    assert found.grown_mb < GROWTH_MAX_MB
    assert found.descriptors[1] <= found.descriptors[0]
    assert found.exit_code == 0
