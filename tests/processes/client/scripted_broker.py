"""A broker that gives the answers of a test: for behaviour that is rare in a real broker, or that needs several
brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType

from jesenska.wire.codec import decode, encode
from jesenska.wire.headers import FIXED, read_client_id, skip_header_tags
from jesenska.wire.language import Message
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse, ApiVersionsResponseApiKey
from jesenska.wire.registry import APIS

#: The answer to a request, or None to close the connection.
Answer = Callable[[Message], Message | None]


class ScriptedBroker:
    """Listens on loopback while in its `async with` block. `answers` has its answers, by the kind of request. It
    announces those APIs in every version, or up to the version in `at_most`."""

    def __init__(
        self, answers: Mapping[type[Message], Answer], at_most: Mapping[type[Message], int] | None = None
    ) -> None:
        self.answers = dict(answers)
        self.at_most = dict(at_most or {})
        self.port = 0
        self._server: asyncio.Server
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> ScriptedBroker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stops the broker: it stops listening and closes its connections."""
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = self._answer(memoryview(await reader.readexactly(size)))
                if answer is None:
                    return
                writer.write(len(answer).to_bytes(4, "big") + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, frame: memoryview) -> bytes | None:
        key, version, correlation_id = FIXED.unpack_from(frame)
        api = APIS[key]
        _, position = read_client_id(frame, FIXED.size, len(frame))
        if api.request_header_version(version) >= 2:
            position = skip_header_tags(frame, position, len(frame))
        request: Message = decode(api.request, version, frame[position:])
        answer = self._versions() if isinstance(request, ApiVersionsRequest) else self.answers[type(request)](request)
        if answer is None:
            return None
        head: bytes = correlation_id.to_bytes(4, "big")
        return head + (b"\0" if api.response_header_version(version) else b"") + encode(answer, version)

    def _versions(self) -> ApiVersionsResponse:
        kinds: list[type[Message]] = [ApiVersionsRequest, *self.answers]
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponseApiKey(
                    api_key=kind.api_key,
                    min_version=kind.versions[0],
                    max_version=self.at_most.get(kind, kind.versions[1]),
                )
                for kind in kinds
            ]
        )
