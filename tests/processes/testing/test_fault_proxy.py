"""The TCP fault proxy, mode by mode, in front of a server that sends back all bytes, and in front of a broker."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jesenska.base.errors import JesenskaError
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.testing import BrokerProcess
from jesenska.testing.faults import FaultProxy, Way

_SECONDS = 60.0


class Echo:
    """Sends back every byte. It keeps the bytes of each connection and the way that it ended."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.heard: list[bytearray] = []
        self.ends: list[str] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        threads = []
        while True:
            connection, _ = self._listening.accept()
            if self._closing:
                connection.close()
                break
            heard = bytearray()
            with self._changed:
                self.heard.append(heard)
                self._changed.notify_all()
            threads.append(threading.Thread(target=self._serve, args=(connection, heard)))
            threads[-1].start()
        for thread in threads:
            thread.join()

    _closing = False

    def _serve(self, connection: socket.socket, heard: bytearray) -> None:
        end = "end"
        with connection:
            try:
                while piece := connection.recv(65536):
                    connection.sendall(piece)
                    with self._changed:
                        heard += piece
                        self._changed.notify_all()
                connection.sendall(b"<end>")
            except OSError:
                end = "reset"
        with self._changed:
            self.ends.append(end)
            self._changed.notify_all()

    def wait_for(self, what: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(what, _SECONDS)

    def close(self) -> None:
        """Closes the server after its clients have gone."""
        self._closing = True
        socket.create_connection(("127.0.0.1", self._listening.getsockname()[1])).close()
        self._thread.join()
        self._listening.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultProxy]:
    with FaultProxy(echo.address) as running:
        yield running


def connected(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), _SECONDS)


def received(connection: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        piece = connection.recv(size - len(found))
        assert piece, f"the connection ends after {bytes(found)!r}"
        found += piece
    return bytes(found)


def is_reset(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b"nothing comes"
    except ConnectionResetError:
        return True


def is_reset_from_the_beginning(proxy: FaultProxy) -> bool:
    try:
        with connected(proxy) as connection:
            return is_reset(connection)
    except ConnectionResetError:
        return True


def nothing_comes(connection: socket.socket) -> bool:
    connection.settimeout(0.1)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return True
    finally:
        connection.settimeout(_SECONDS)


def test_bytes_go_through_both_ways_as_they_are(proxy: FaultProxy) -> None:
    sent = bytes(range(256)) * 20_000
    with connected(proxy) as connection:
        sending = threading.Thread(target=connection.sendall, args=(sent,))
        sending.start()
        assert received(connection, len(sent)) == sent
        sending.join()
        assert (proxy.accepted, proxy.connections) == (1, 1)
        assert proxy.passed_bytes(Way.TO_TARGET) == proxy.passed_bytes(Way.TO_CLIENT) == len(sent)
        assert proxy.passed_bytes(Way.BOTH) == 2 * len(sent)


def test_the_end_of_one_direction_goes_through_and_leaves_the_other(proxy: FaultProxy) -> None:
    with connected(proxy) as connection:
        connection.sendall(b"last words")
        connection.shutdown(socket.SHUT_WR)
        assert received(connection, 15) == b"last words<end>"
        assert connection.recv(1) == b""


def test_connections_are_apart(proxy: FaultProxy) -> None:
    with connected(proxy) as one, connected(proxy) as two:
        one.sendall(b"one")
        two.sendall(b"two")
        assert (received(one, 3), received(two, 3)) == (b"one", b"two")
        assert proxy.connections == 2


@pytest.mark.parametrize("way", [Way.TO_TARGET, Way.TO_CLIENT, Way.BOTH])
def test_delayed_bytes_come_later(proxy: FaultProxy, way: Way) -> None:
    proxy.delay(150, way)
    with connected(proxy) as connection:
        began = time.monotonic()
        connection.sendall(b"late")
        assert received(connection, 4) == b"late"
        assert time.monotonic() - began >= (0.3 if way is Way.BOTH else 0.15)


def test_delayed_bytes_are_on_their_way_together_and_keep_their_order(proxy: FaultProxy) -> None:
    proxy.delay(100)
    with connected(proxy) as connection:
        sent = b""
        for number in range(200):
            connection.sendall(b"%d " % number)
            sent += b"%d " % number
        assert received(connection, len(sent)) == sent


def test_what_is_delayed_leaves_when_the_delay_ends(proxy: FaultProxy) -> None:
    proxy.delay(1_000_000)
    with connected(proxy) as connection:
        connection.sendall(b"soon")
        assert nothing_comes(connection)
        proxy.delay(0)
        assert received(connection, 4) == b"soon"


def test_a_limit_holds_for_all_connections_together(proxy: FaultProxy) -> None:
    proxy.limit(20_000, Way.TO_TARGET)
    with connected(proxy) as one, connected(proxy) as two:
        began = time.monotonic()
        for connection in (one, two):
            connection.sendall(bytes(5_000))
        for connection in (one, two):
            assert received(connection, 5_000) == bytes(5_000)
        # The first piece is sent at once.
        assert time.monotonic() - began >= 0.4


def test_what_a_limit_keeps_leaves_when_the_limit_ends(proxy: FaultProxy) -> None:
    proxy.limit(1)
    with connected(proxy) as connection:
        connection.sendall(b"slow as can be")
        proxy.limit(None)
        assert received(connection, 14) == b"slow as can be"


def test_what_is_held_to_the_client_has_reached_the_target_and_comes_when_it_is_released(
    proxy: FaultProxy, echo: Echo
) -> None:
    with connected(proxy) as connection:
        proxy.hold(Way.TO_CLIENT)
        connection.sendall(b"one")
        echo.wait_for(lambda: echo.heard == [b"one"])
        connection.sendall(b"two")
        echo.wait_for(lambda: echo.heard == [b"onetwo"])
        assert nothing_comes(connection)
        assert proxy.passed_bytes(Way.TO_CLIENT) == 0
        proxy.release()
        assert received(connection, 6) == b"onetwo"


def test_what_is_held_to_the_target_does_not_reach_it(proxy: FaultProxy, echo: Echo) -> None:
    with connected(proxy) as connection:
        connection.sendall(b"one")
        assert received(connection, 3) == b"one"
        proxy.hold(Way.TO_TARGET)
        connection.sendall(b"two")
        assert nothing_comes(connection)
        assert echo.heard == [b"one"]
        proxy.release(Way.TO_TARGET)
        assert received(connection, 3) == b"two"


def test_a_new_connection_is_held_too_and_so_is_an_end(proxy: FaultProxy, echo: Echo) -> None:
    proxy.hold()
    with connected(proxy) as connection:
        connection.sendall(b"held")
        connection.shutdown(socket.SHUT_WR)
        assert nothing_comes(connection)
        assert echo.ends == []
        proxy.release()
        assert received(connection, 9) == b"held<end>"
    echo.wait_for(lambda: echo.ends == ["end"])


def test_who_sends_without_end_into_what_is_held_has_to_wait(proxy: FaultProxy) -> None:
    proxy.hold()
    with connected(proxy) as connection:
        connection.settimeout(1.0)
        sent = 0
        with pytest.raises(TimeoutError):
            while True:
                sent += connection.send(bytes(1024 * 1024))
                assert sent < 64 * 1024 * 1024


def test_a_cut_resets_both_ends_and_loses_what_is_held(proxy: FaultProxy, echo: Echo) -> None:
    with connected(proxy) as one, connected(proxy) as two:
        for connection in (one, two):
            connection.sendall(b"a")
            assert received(connection, 1) == b"a"
        proxy.hold(Way.TO_TARGET)
        one.sendall(b"lost")
        assert proxy.cut() == 2
        assert is_reset(one) and is_reset(two)
    echo.wait_for(lambda: echo.ends == ["reset", "reset"])
    assert echo.heard == [b"a", b"a"]
    assert proxy.connections == 0
    proxy.release()
    with connected(proxy) as again:
        again.sendall(b"b")
        assert received(again, 1) == b"b"
    assert proxy.cut() <= 1


def test_refused_connections_are_refused_others_stay_and_the_port_is_the_same_afterwards(proxy: FaultProxy) -> None:
    with connected(proxy) as connection:
        for _ in range(2):
            proxy.refuse()
            proxy.refuse()
            with pytest.raises(ConnectionRefusedError):
                connected(proxy)
            connection.sendall(b"still here")
            assert received(connection, 10) == b"still here"
            proxy.accept()
            proxy.accept()
            with connected(proxy) as other:
                other.sendall(b"new")
                assert received(other, 3) == b"new"


def test_who_has_connected_a_moment_ago_is_cut_and_is_not_refused(proxy: FaultProxy) -> None:
    for _ in range(50):
        with connected(proxy) as connection:
            proxy.refuse()
            connection.sendall(b"here")
            assert received(connection, 4) == b"here"
            proxy.accept()
            with connected(proxy) as other:
                assert proxy.cut() == 2
                assert is_reset(other)


def test_pass_all_ends_every_fault(proxy: FaultProxy) -> None:
    proxy.delay(1_000_000)
    proxy.limit(1)
    proxy.hold()
    with connected(proxy) as connection:
        connection.sendall(b"at last")
        proxy.refuse()
        proxy.pass_all()
        assert received(connection, 7) == b"at last"
        connected(proxy).close()


def test_a_client_whose_target_is_not_there_is_reset() -> None:
    with FaultProxy() as proxy:
        assert proxy.target is None
        assert is_reset_from_the_beginning(proxy)
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            proxy.target = f"127.0.0.1:{deaf.getsockname()[1]}"
            assert is_reset_from_the_beginning(proxy)


def test_a_target_that_is_set_later_gets_new_connections(echo: Echo) -> None:
    with FaultProxy() as proxy:
        proxy.target = echo.address
        assert proxy.target == echo.address
        with connected(proxy) as connection:
            connection.sendall(b"hello")
            assert received(connection, 5) == b"hello"


def test_a_proxy_that_is_closed_resets_and_can_be_started_on_its_port_again(echo: Echo) -> None:
    proxy = FaultProxy(echo.address)
    with proxy, connected(proxy) as connection:
        connection.sendall(b"a")
        assert received(connection, 1) == b"a"
        port = proxy.port
        proxy.close()
        assert is_reset(connection)
        with pytest.raises(ConnectionRefusedError):
            connected(proxy)
    with proxy, connected(proxy) as connection:
        assert proxy.port == port
        connection.sendall(b"b")
        assert received(connection, 1) == b"b"


def test_what_makes_no_sense_is_refused(proxy: FaultProxy) -> None:
    with pytest.raises(ValueError, match="is not a delay"):
        proxy.delay(-1)
    with pytest.raises(ValueError, match="use hold"):
        proxy.limit(0)
    with pytest.raises(JesenskaError, match="is not an address"):
        FaultProxy("nowhere:none")
    with pytest.raises(JesenskaError, match="names 2 addresses"):
        FaultProxy("127.0.0.1:1,127.0.0.1:2")


def test_a_broker_that_tells_its_clients_the_proxys_address_is_reached_through_it(tmp_path: Path) -> None:
    with FaultProxy() as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        with BrokerProcess(tmp_path / "data", settings=settings, warm=True) as broker:
            proxy.target = broker.bootstrap
            assert broker.port != proxy.port

            async def work() -> None:
                # The bootstrap is the broker's own address. Later connections go to the addresses in the metadata.
                cluster = Cluster(broker.bootstrap)
                try:
                    async with Producer(cluster) as producer:
                        await (await producer.send("through", b"value"))
                        assert {(node.host, node.port) for node in cluster.nodes.values()} == {(proxy.host, proxy.port)}
                        before = proxy.accepted
                        assert before >= 1
                        assert proxy.cut() >= 1
                        await (await producer.send("through", b"after the cut"))
                        assert proxy.accepted > before
                finally:
                    await cluster.close()

            asyncio.run(work())
            port = broker.port
            broker.kill()
            broker.start()
            assert broker.port == port
