"""Certificates, trusted authorities and a password that change while clients of three kinds write: those that are
connected go on without an error, and new ones meet the change."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, Self

import pytest

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import BROKER, ConfigChange
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.administration.user_administration import ScramPassword
from jesenska.client.client_config import client_config
from jesenska.client.cluster import Cluster
from jesenska.client.offsets import LATEST, list_offsets
from jesenska.client.producer import Producer
from jesenska.config.settings.client_settings import ADMIN_SETTINGS
from jesenska.security.authority import Authority, new_authority
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need, need_modules
from tests.peers.apache_kafka import free_port, tool_command

_JAVA, _LIBRDKAFKA, _OURS = "java 3.9.1", "confluent-kafka", "jesenska"
_KINDS = (_JAVA, _LIBRDKAFKA, _OURS)
_TOPICS = {_JAVA: "by-java", _LIBRDKAFKA: "by-librdkafka", _OURS: "by-jesenska"}
_MECHANISM = "SCRAM-SHA-512"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_SECONDS = 60.0
#: Records that each client writes after a change, before the next change.
_MORE = 30

pytestmark = [pytest.mark.timeout(300), pytest.mark.hour("src/jesenska/security")]


@dataclass(frozen=True)
class Login:
    """What a client shows and trusts."""

    address: str
    directory: Path
    password: str = "first-sEcret"
    shown: str = "client.pem"

    def java(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": _MECHANISM,
            "sasl.jaas.config": f'{_SCRAM} username="eva" password="{self.password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / "ca.pem"),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.directory / self.shown),
        }

    def properties(self) -> str:
        """The path of a file with the settings of a Java client."""
        file = self.directory / f"{self.password}-{self.shown}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self.java().items()))
        return str(file)

    def librdkafka(self) -> dict[str, Any]:
        shown = str(self.directory / self.shown)
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": _MECHANISM,
            "sasl.username": "eva",
            "sasl.password": self.password,
            "ssl.ca.location": str(self.directory / "ca.pem"),
            "ssl.key.location": shown,
            "ssl.certificate.location": shown,
        }

    def cluster(self) -> Cluster:
        return Cluster(self.address, client_config(ADMIN_SETTINGS, self.java()))


class Writer(Protocol):
    """A client that writes all the time. `check` raises its error."""

    def check(self) -> None: ...

    def close(self) -> None: ...


class JavaWriter:
    """The console producer, which gets a line for each record."""

    def __init__(self, login: Login) -> None:
        words = ["--bootstrap-server", login.address, "--topic", _TOPICS[_JAVA]]
        self._errors = (login.directory / "java.err").open("w+")
        self._process = subprocess.Popen(
            tool_command("3.9.1", "kafka-console-producer", *words, "--producer.config", login.properties()),
            stdin=subprocess.PIPE,
            stdout=self._errors,
            stderr=self._errors,
        )
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._feed)
        self._thread.start()

    def _feed(self) -> None:
        assert self._process.stdin is not None
        try:
            while not self._ends.wait(0.01):
                self._process.stdin.write(b"a record\n")
                self._process.stdin.flush()
        except BrokenPipeError:
            return

    def check(self) -> None:
        self._errors.seek(0)
        said = self._errors.read()
        assert "ERROR" not in said, said
        assert "Exception" not in said, said
        assert self._process.poll() is None, said

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


class _ThreadWriter:
    """A client on a thread of this process."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._ends = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _write(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as failure:
            self._failure = failure

    def check(self) -> None:
        assert self._failure is None, repr(self._failure)

    def close(self) -> None:
        self._ends.set()
        self._thread.join()


class LibrdkafkaWriter(_ThreadWriter):
    def _write(self) -> None:
        from confluent_kafka import Producer as TheirProducer

        errors: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                errors.append(error)

        producer = TheirProducer(self._login.librdkafka() | {"error_cb": errors.append})
        while not self._ends.wait(0.01):
            producer.produce(_TOPICS[_LIBRDKAFKA], b"a record", on_delivery=delivered)
            assert producer.flush(_SECONDS) == 0
            assert errors == []


class OurWriter(_ThreadWriter):
    def _write(self) -> None:
        asyncio.run(self._write_all())

    async def _write_all(self) -> None:
        with_login = self._login.cluster()
        try:
            async with Producer(with_login) as producer:
                while not self._ends.is_set():
                    await (await producer.send(_TOPICS[_OURS], b"a record"))
        finally:
            await with_login.close()


_WRITERS: Mapping[str, Callable[[Login], Writer]] = {
    _JAVA: JavaWriter,
    _LIBRDKAFKA: LibrdkafkaWriter,
    _OURS: OurWriter,
}


def _java_gets_in(login: Login) -> bool:
    done = subprocess.run(
        tool_command(
            "3.9.1",
            "kafka-topics",
            *("--bootstrap-server", login.address, "--command-config", login.properties(), "--list"),
        ),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    assert _TOPICS[_JAVA] in done.stdout or "xception" in done.stdout + done.stderr
    return _TOPICS[_JAVA] in done.stdout


def _librdkafka_gets_in(login: Login) -> bool:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    refused = threading.Event()
    client = AdminClient(login.librdkafka() | {"error_cb": lambda _: refused.set(), "logger": _Silent()})
    try:
        return _TOPICS[_JAVA] in client.list_topics(timeout=5).topics
    except KafkaException:
        client.poll(1)
        assert refused.is_set()
        return False


class _Silent:
    """A logger for librdkafka, whose complaints are expected."""

    def log(self, *_: object) -> None:
        pass


def _ours_gets_in(login: Login) -> bool:
    async def look() -> bool:
        cluster = login.cluster()
        try:
            return _TOPICS[_JAVA] in await cluster.topics()
        except KafkaError:
            return False
        finally:
            await cluster.close()

    return asyncio.run(look())


_GETS_IN: Mapping[str, Callable[[Login], bool]] = {
    _JAVA: _java_gets_in,
    _LIBRDKAFKA: _librdkafka_gets_in,
    _OURS: _ours_gets_in,
}


class Place:
    """The broker, its files and its administrator, who uses a listener without TLS."""

    def __init__(self, directory: Path, authorities: tuple[Authority, Authority]) -> None:
        self.directory = directory
        self.first, self.second = authorities
        self._ports = {name: free_port() for name in ("PLAINTEXT", "SASL_SSL")}
        (directory / "ca.pem").write_text(self.first.pem)
        for name, authority in (("client.pem", self.first), ("client-2.pem", self.second)):
            (directory / name).write_text(authority.issue("eva", [], datetime.now(UTC)))
        self.renew()
        self._broker = BrokerProcess(
            directory / "data",
            settings={
                "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items()),
                "sasl.enabled.mechanisms": _MECHANISM,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(directory / "broker.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(directory / "ca.pem"),
                "listener.name.sasl_ssl.ssl.client.auth": "required",
                "offsets.topic.num.partitions": "1",
            },
        )
        self.login = Login(f"127.0.0.1:{self._ports['SASL_SSL']}", directory)

    def __enter__(self) -> Self:
        self._broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.stop()

    @property
    def log(self) -> str:
        return self._broker.log

    def renew(self) -> None:
        """Replaces the broker's key store by a new certificate of the same authority."""
        fresh = self.directory / "broker.pem.new"
        fresh.write_text(self.first.issue("broker", ["127.0.0.1"], datetime.now(UTC)))
        os.replace(fresh, self.directory / "broker.pem")

    def administer(self, work: Callable[[Admin], Any]) -> Any:
        async def run() -> Any:
            cluster = Cluster(f"127.0.0.1:{self._ports['PLAINTEXT']}", client_config(ADMIN_SETTINGS, {}))
            try:
                return await work(Admin(cluster))
            finally:
                await cluster.close()

        return asyncio.run(run())

    def counts(self) -> dict[str, int]:
        """How many records each client has written."""

        async def look(admin: Admin) -> dict[str, int]:
            found = await list_offsets(admin.cluster, {TopicPartition(topic, 0): LATEST for topic in _TOPICS.values()})
            return {kind: found[TopicPartition(topic, 0)].offset for kind, topic in _TOPICS.items()}

        counts: dict[str, int] = self.administer(look)
        return counts

    def shown(self) -> bytes:
        """The certificate that the broker shows to a new client."""
        context = ssl.create_default_context(cafile=str(self.directory / "ca.pem"))
        context.load_cert_chain(self.directory / "client.pem")
        host, _, port = self.login.address.rpartition(":")
        with (
            socket.create_connection((host, int(port)), 20) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            found = secured.getpeercert(binary_form=True)
        assert found is not None
        return found


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@contextmanager
def _writers(place: Place) -> Iterator[dict[str, Writer]]:
    with ExitStack() as stack:
        yield {kind: stack.enter_context(closing(make(place.login))) for kind, make in _WRITERS.items()}


def test_connected_clients_outlive_every_change_and_new_ones_meet_it(tmp_path: Path) -> None:
    need("java", "mvn")
    need_modules("confluent_kafka")
    now = datetime.now(UTC)
    with Place(tmp_path, (new_authority("first", now), new_authority("second", now))) as place:

        async def prepare(admin: Admin) -> None:
            await admin.create_topics([NewTopic(topic, 1, 1) for topic in _TOPICS.values()])
            await admin.alter_user_credentials("eva", {_MECHANISM: ScramPassword("first-sEcret")})

        place.administer(prepare)
        with _writers(place) as writers:

            def all_go_on(after: str) -> None:
                before = place.counts()
                for kind, writer in writers.items():
                    until(lambda kind=kind: place.counts()[kind] >= before[kind] + _MORE, f"{kind} stops after {after}")  # type: ignore[misc]
                    writer.check()

            def get_in(login: Login) -> dict[str, bool]:
                return {kind: _GETS_IN[kind](login) for kind in _KINDS}

            everybody, nobody = dict.fromkeys(_KINDS, True), dict.fromkeys(_KINDS, False)
            all_go_on("the start")

            certificate = place.shown()
            place.renew()
            until(lambda: place.shown() != certificate, "the old certificate is still shown")
            all_go_on("a new certificate")
            assert get_in(place.login) == everybody

            new = replace(place.login, password="second-sEcret")
            place.administer(
                lambda admin: admin.alter_user_credentials("eva", {_MECHANISM: ScramPassword(new.password)})
            )
            until(lambda: _ours_gets_in(new), "the new password is refused")
            all_go_on("a new password")
            assert get_in(place.login) == nobody
            assert get_in(new) == everybody

            other = tmp_path / "ca-2.pem"
            other.write_text(place.second.pem)
            trust = ConfigChange("listener.name.sasl_ssl.ssl.truststore.location", str(other))
            place.administer(lambda admin: admin.alter_configs(BROKER, "1", [trust]))
            trusted = replace(new, shown="client-2.pem")
            until(lambda: _ours_gets_in(trusted), "the new authority is not trusted")
            all_go_on("a new trust store")
            assert get_in(new) == nobody
            assert get_in(trusted) == everybody
        assert "Traceback" not in place.log
