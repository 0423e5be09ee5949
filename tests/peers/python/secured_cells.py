"""Clients in Python that log in again and again, a cell a line, as `SecuredClient.java` in the directory above says.

python -m tests.peers.python.secured_cells confluent_kafka|kafka|aiokafka
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol


class Cell(NamedTuple):
    """What a line says."""

    id: str
    bootstrap: str
    protocol: str
    ca: str
    cert: str
    mechanism: str
    user: str
    secret: str
    topic: str
    group: str
    held: bool
    step_ms: int

    @property
    def has_tls(self) -> bool:
        return "SSL" in self.protocol


class Client(Protocol):
    def produce(self) -> None: ...
    def consume(self, to_end: bool) -> None: ...
    def close(self) -> None: ...


class Said(logging.Handler):
    """Keeps what a client logs: some log why they cannot connect, and raise that a time is over."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


_WORDS = (
    ("topic refused", ("TopicAuthorizationFailed", "TOPIC_AUTHORIZATION_FAILED", "Topic authorization failed")),
    ("topic refused", ("is not authorized for this client",)),
    ("group refused", ("GroupAuthorizationFailed", "GROUP_AUTHORIZATION_FAILED", "Group authorization failed")),
    ("authentication failed", ("SaslAuthenticationFailed", "AuthenticationFailed", "_AUTHENTICATION", "[Error 58]")),
    ("authentication failed", ("uthentication failed",)),
    ("handshake failed", ("certificate", "SSL handshake", "SSLError", "SSL:", "_SSL", "TLSV1", "SSL alert")),
    ("disconnected", ("ConnectionError", "connection reset", "Disconnected", "disconnected", "closed by", "Closed")),
    ("timed out", ("Timeout", "timed out", "TIMED_OUT")),
)


def class_of(text: str) -> str:
    for name, words in _WORDS:
        if any(word in text for word in words):
            return name
    return f"other: {text[:60]}"


class Failed(Exception):
    """A step's failure in the words of `class_of`."""


class Confluent:
    def __init__(self, cell: Cell, said: Said) -> None:
        self._cell, self._errors = cell, list[str]()
        self._consumer: Any = None
        self._producer: Any = None

    def _settings(self) -> dict[str, Any]:
        cell = self._cell
        found: dict[str, Any] = {
            "bootstrap.servers": cell.bootstrap,
            "security.protocol": cell.protocol,
            "broker.address.family": "v4",
            "reconnect.backoff.ms": 20,
            "log_level": 0,
            "error_cb": lambda error: self._errors.append(str(error)),
        }
        if cell.has_tls:
            found["ssl.ca.location"] = cell.ca
        if cell.cert:
            found |= {"ssl.certificate.location": cell.cert, "ssl.key.location": cell.cert}
        if cell.mechanism:
            found["sasl.mechanism"] = cell.mechanism
            if cell.mechanism == "OAUTHBEARER":
                found["oauth_cb"] = lambda _: (cell.secret, time.time() + 3000)
            else:
                found |= {"sasl.username": cell.user, "sasl.password": cell.secret}
        return found

    def produce(self) -> None:
        from confluent_kafka import Producer

        if self._producer is None:
            self._producer = Producer(self._settings() | {"message.timeout.ms": self._cell.step_ms})
        done: list[str] = []
        told = lambda error, _: done.append("" if error is None else error.name())  # noqa: E731
        self._producer.produce(self._cell.topic, b"x", on_delivery=told)
        deadline = time.monotonic() + self._cell.step_ms / 1000
        while not done and time.monotonic() < deadline:
            self._producer.poll(0.05)
            self._raise_told()
        if done != [""]:
            raise Failed(self._why(done[0] if done else "timed out"))

    def _raise_told(self) -> None:
        """librdkafka goes on after a refused login and tells it by the callback alone."""
        for text in self._errors:
            if "_AUTHENTICATION" in text or "_SSL" in text or "SSL alert" in text:
                raise Failed(text)

    def consume(self, to_end: bool) -> None:
        from confluent_kafka import Consumer

        if self._consumer is None:
            self._errors.clear()
            more = {"group.id": self._cell.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
            self._consumer = Consumer(self._settings() | more)
            self._consumer.subscribe([self._cell.topic])
        deadline = time.monotonic() + self._cell.step_ms / 1000
        while time.monotonic() < deadline:
            message = self._consumer.poll(0.05)
            self._raise_told()
            if message is not None and message.error():
                raise Failed(str(message.error()))
            if message is not None and not to_end:
                return
        if not to_end:
            raise Failed(self._why("timed out"))

    def _why(self, text: str) -> str:
        """What was told by the callback, if all that the client says is that a time is over."""
        is_late = text in ("timed out", "_MSG_TIMED_OUT")
        return next((told for told in self._errors if "_ALL_BROKERS_DOWN" not in told), text) if is_late else text

    def close(self) -> None:
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(0.5)
        if self._consumer is not None:
            self._consumer.close()


def _login(cell: Cell, tokens: Callable[[], object]) -> dict[str, Any]:
    """The login as kafka-python and aiokafka take it."""
    if not cell.mechanism:
        return {}
    if cell.mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": cell.mechanism, "sasl_oauth_token_provider": tokens()}
    return {
        "sasl_mechanism": cell.mechanism,
        "sasl_plain_username": cell.user,
        "sasl_plain_password": cell.secret,
    }


class KafkaPython:
    def __init__(self, cell: Cell, said: Said) -> None:
        self._cell, self._said = cell, said
        self._producer: Any = None
        self._consumer: Any = None

    def _settings(self) -> dict[str, Any]:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        cell = self._cell

        class Tokens(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return cell.secret

        found: dict[str, Any] = {
            "bootstrap_servers": cell.bootstrap,
            "security_protocol": cell.protocol,
            "bootstrap_timeout_ms": cell.step_ms,
            "reconnect_backoff_ms": 20,
            **_login(cell, Tokens),
        }
        if cell.has_tls:
            found["ssl_cafile"] = cell.ca
        if cell.cert:
            found |= {"ssl_certfile": cell.cert, "ssl_keyfile": cell.cert}
        return found

    def produce(self) -> None:
        from kafka import KafkaProducer

        if self._producer is None:
            self._producer = KafkaProducer(max_block_ms=self._cell.step_ms, **self._settings())
        self._producer.send(self._cell.topic, b"x").get(timeout=self._cell.step_ms / 1000)

    def consume(self, to_end: bool) -> None:
        from kafka import KafkaConsumer

        if self._consumer is None:
            self._consumer = KafkaConsumer(
                group_id=self._cell.group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                **self._settings(),
            )
            # A member that learns of its topic after it has joined may read nothing for a long time.
            self._consumer.partitions_for_topic(self._cell.topic)
            self._consumer.subscribe([self._cell.topic])
        deadline = time.monotonic() + self._cell.step_ms / 1000
        while time.monotonic() < deadline:
            if self._consumer.poll(timeout_ms=100) and not to_end:
                return
            # A refusal that answers a metadata request is only logged, and no fetch follows that could be refused.
            refused = self._consumer._cluster.unauthorized_topics
            if refused:
                raise Failed(f"Topic authorization failed in the metadata of {refused}")
        if not to_end:
            raise Failed("timed out")

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close(timeout=0.5)
        if self._consumer is not None:
            self._consumer.close(timeout_ms=500)


class AioKafka:
    def __init__(self, cell: Cell, said: Said) -> None:
        self._cell = cell
        self._loop = asyncio.new_event_loop()
        self._producer: Any = None
        self._consumer: Any = None

    def _settings(self) -> dict[str, Any]:
        from aiokafka.abc import AbstractTokenProvider

        cell = self._cell

        class Tokens(AbstractTokenProvider):  # type: ignore[misc]
            async def token(self) -> str:
                return cell.secret

        context = None
        if cell.has_tls:
            context = ssl.create_default_context(cafile=cell.ca)
            if cell.cert:
                context.load_cert_chain(cell.cert)
        return {
            "bootstrap_servers": cell.bootstrap,
            "security_protocol": cell.protocol,
            "ssl_context": context,
            "request_timeout_ms": cell.step_ms,
            "retry_backoff_ms": 50,
            **_login(cell, Tokens),
        }

    def _within(self, work: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, self._cell.step_ms / 1000))

    def produce(self) -> None:
        self._within(self._produce())

    async def _produce(self) -> None:
        from aiokafka import AIOKafkaProducer

        if self._producer is None:
            self._producer = AIOKafkaProducer(**self._settings())
            await self._producer.start()
        await self._producer.send_and_wait(self._cell.topic, b"x")

    def consume(self, to_end: bool) -> None:
        try:
            self._within(self._consume(to_end))
        except TimeoutError:
            if not to_end:
                raise

    async def _consume(self, to_end: bool) -> None:
        from aiokafka import AIOKafkaConsumer

        if self._consumer is None:
            self._consumer = AIOKafkaConsumer(
                self._cell.topic,
                group_id=self._cell.group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                **self._settings(),
            )
            await self._consumer.start()
        while not await self._consumer.getmany(timeout_ms=100) or to_end:
            pass

    def close(self) -> None:
        for client in (self._producer, self._consumer):
            if client is not None:
                with suppress(TimeoutError):
                    self._within(client.stop())
        self._loop.close()


_CLIENTS: dict[str, Callable[[Cell, Said], Client]] = {
    "confluent_kafka": Confluent,
    "kafka": KafkaPython,
    "aiokafka": AioKafka,
}


def _say(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _run(client: Client, cell: Cell, said: Said) -> None:
    steps: dict[str, str] = {}
    errors: dict[str, str] = {}

    def step(name: str, work: Callable[[], None]) -> None:
        said.lines.clear()
        try:
            work()
            steps[name] = "ok"
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            found = class_of(text)
            if found not in ("topic refused", "group refused", "authentication failed", "handshake failed"):
                found = class_of("\n".join([*said.lines, text]))
            steps[name], errors[name] = found, "\n".join([text, *said.lines[-4:]])

    step("produce", client.produce)
    step("consume", lambda: client.consume(False))
    if cell.held:
        _say(id=cell.id, held=True)
        to_end = json.loads(sys.stdin.readline())["to_end"]
        step("produce again", client.produce)
        step("consume again", lambda: client.consume(to_end))
    with suppress(Exception):
        client.close()
    _say(id=cell.id, steps=steps, errors=errors)


def main(name: str) -> None:
    said = Said()
    logging.basicConfig(level=logging.INFO, handlers=[said])
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        cell = Cell(**{field: asked[field] for field in Cell._fields})
        _run(_CLIENTS[name](cell, said), cell, said)


if __name__ == "__main__":
    main(*sys.argv[1:])
