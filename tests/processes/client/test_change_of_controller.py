"""The controller goes, or is another broker: what the client does until it has found the next one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from jesenska.base.errors import ErrorCode, NetworkException, NotControllerError
from jesenska.client.administration.admin import Admin
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster
from jesenska.wire.language import Message
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from jesenska.wire.messages.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicsResponseTopic,
)
from tests.on_a_loop import on_a_loop
from tests.processes.client.scripted_broker import ScriptedBroker

#: A broker's id that nobody has.
NOBODY = -1


@dataclass
class Script:
    """Brokers 0 and 1. `told` has the controllers that answers to Metadata name, one after another, the last one for
    good; `controller` is who it is; `breaks` are brokers that end a connection instead of answering. `asked` has who
    was asked to delete a topic."""

    told: list[int]
    controller: int
    breaks: set[int] = field(default_factory=set)
    ports: dict[int, int] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)

    def metadata(self, request: Message) -> MetadataResponse:
        named = self.told.pop(0) if len(self.told) > 1 else self.told[0]
        brokers = [
            MetadataResponseBroker(node_id=number, host="127.0.0.1", port=port) for number, port in self.ports.items()
        ]
        return MetadataResponse(brokers=brokers, controller_id=named)

    def broker(self, number: int) -> ScriptedBroker:
        def delete(request: Message) -> DeleteTopicsResponse | None:
            self.asked.append(number)
            if number in self.breaks:
                return None
            code = ErrorCode.NONE if number == self.controller else ErrorCode.NOT_CONTROLLER
            return DeleteTopicsResponse(responses=[DeleteTopicsResponseTopic(name="t", error_code=code)])

        return ScriptedBroker({MetadataRequest: self.metadata, DeleteTopicsRequest: delete})


@asynccontextmanager
async def scripted(
    script: Script, *, gone: int = NOBODY, named: int = 0, seconds: float = 30.0
) -> AsyncIterator[Cluster]:
    """A client of the script's brokers that was told of broker `named`; broker `gone` goes before the client's first
    request."""
    async with asyncio.timeout(60), script.broker(0) as first, script.broker(1) as second:
        script.ports = {0: first.port, 1: second.port}
        cluster = Cluster(
            f"127.0.0.1:{script.ports[named]}",
            ClientConfig(
                request_timeout_seconds=seconds,
                retry_backoff_seconds=0.01,
                retry_backoff_max_seconds=0.01,
                reconnect_backoff_seconds=0.01,
                reconnect_backoff_max_seconds=0.01,
            ),
        )
        try:
            await cluster.refresh([])
            if gone != NOBODY:
                await (first, second)[gone].stop()
            yield cluster
        finally:
            await cluster.close()


@on_a_loop
async def test_the_next_controller_is_found_while_brokers_name_one_that_is_gone() -> None:
    script = Script(told=[0, 0, 0, NOBODY, 1], controller=1)
    async with scripted(script, gone=0, named=1) as cluster:
        assert await Admin(cluster).delete_topics(["t"]) == {"t": None}
    # Once as any broker, while nobody was named: the script's broker 1 is controller by then.
    assert (script.asked, script.told) == ([1], [1])


@on_a_loop
async def test_a_broker_that_is_not_controller_is_asked_again_until_one_is_named() -> None:
    script = Script(told=[0, 0, NOBODY, 1], controller=1)
    async with scripted(script) as cluster:
        assert await Admin(cluster).delete_topics(["t"]) == {"t": None}
    assert script.asked == [0, 0, 0, 1]


@on_a_loop
async def test_a_controller_that_goes_while_it_answers_is_replaced() -> None:
    script = Script(told=[0, 0, 1], controller=1, breaks={0})
    async with scripted(script) as cluster:
        assert await Admin(cluster).delete_topics(["t"]) == {"t": None}
    # A connection that breaks is made again once; only then the metadata are asked for.
    assert script.asked == [0, 0, 0, 0, 1]


@on_a_loop
async def test_without_a_next_controller_the_last_failure_stands_when_the_time_is_over() -> None:
    script = Script(told=[0], controller=1)
    async with scripted(script, gone=0, named=1, seconds=0.2) as cluster:
        with pytest.raises(NetworkException, match=f"^No broker answers at 127.0.0.1:{script.ports[0]} |^Broker 0 "):
            await Admin(cluster).delete_topics(["t"])
    assert script.asked == []
    async with scripted(script, seconds=0.2) as cluster:
        refused = await Admin(cluster).delete_topics(["t"])
    assert isinstance(refused["t"], NotControllerError)
    assert len(script.asked) > 1


@on_a_loop
async def test_the_only_broker_that_tells_a_wrong_address_is_not_waited_for() -> None:
    script = Script(told=[0], controller=0)
    async with asyncio.timeout(10), script.broker(0) as broker, script.broker(0) as gone:
        script.ports = {0: gone.port}
        await gone.stop()
        cluster = Cluster(f"127.0.0.1:{broker.port}")
        says = f"Broker 0 tells its clients to connect to 127.0.0.1:{gone.port}, which cannot be reached from here"
        with pytest.raises(NetworkException, match=f"^{re.escape(says)}"):
            await Admin(cluster).delete_topics(["t"])
        await cluster.close()


@on_a_loop
async def test_a_client_that_is_closed_looks_for_no_controller() -> None:
    script = Script(told=[0], controller=1)
    async with asyncio.timeout(10), scripted(script) as cluster:
        deleting = asyncio.create_task(Admin(cluster).delete_topics(["t"]))
        while not script.asked:
            await asyncio.sleep(0)
        await cluster.close()
        with pytest.raises(NetworkException):
            await deleting
