"""The largest legal requests: each array of each request is filled as far as a broker accepts it, and each field of
bytes has tens of megabytes.

    python -m tests.processes.fuzz.largest_requests  every API and version, beside a bystander. A line for each that
                                                     has an effect on it
    python -m tests.processes.fuzz.largest_requests --api 1    one API

Prints for each request: the longest wait of the bystander while it was processed, the most additional memory of the
broker, and the additional memory that is left two seconds later."""

from __future__ import annotations

import argparse
import copy
import os
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import resident_mb

from jesenska.base.limits import CREATION_ELEMENTS_MAX, REQUEST_ELEMENTS_MAX
from jesenska.testing import BrokerProcess
from jesenska.wire.language import BYTES, INT8, INT16, INT32, INT64, STRING, UUID, Array, Message, Struct
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.raw_connection import ClosedByBrokerError, RawConnection
from tests.sensible_requests import SENSIBLE, Served

#: Bytes of one large field; a request may have 100 MB.
_LARGE_BYTES = 60_000_000
_CREATION = (19, 37, 45)
#: An answer that takes longer is one that waits: for records, for members.
_PATIENCE_SECONDS = 20.0


@dataclass(frozen=True)
class Felt:
    """The effect of one request on all other clients."""

    what: str
    request_mb: float
    bystander_seconds: float
    grown_mb: float
    left_mb: float


def arrays(value: Struct, version: int, path: str = "") -> Iterator[tuple[Struct, str, Any, str]]:
    """Every array and every field of bytes inside a message, which has at least one element everywhere: owner, field,
    type and path."""
    kind: Any = type(value)
    for item in kind.fields:
        if not item.present(version):
            continue
        held = getattr(value, item.name)
        where = f"{path}.{item.name}"
        if isinstance(item.type, Array):
            if not held and isinstance(item.type.element, type):
                setattr(value, item.name, held := [item.type.element()])
            yield value, item.name, item.type, where
            if held and isinstance(held[0], Struct):
                yield from arrays(held[0], version, where)
        elif item.type is BYTES:
            yield value, item.name, item.type, where


def filled(request: Message, version: int, room: int, number: int, distinct: bool) -> tuple[Message, str] | None:
    """The request with the array of this number filled. None after the last array."""
    made = copy.deepcopy(request)
    found = list(arrays(made, version))
    if number >= len(found):
        return None
    owner, name, kind, where = found[number]
    if kind is BYTES:
        setattr(owner, name, bytes(_LARGE_BYTES))
        return made, f"{where}: {_LARGE_BYTES:,} bytes"
    held = getattr(owner, name) or [None]
    # Every other array keeps its one element.
    count = (room - len(found)) // (1 + _inside(held[0]))
    setattr(owner, name, [_element(kind.element, held[0], each if distinct else 0) for each in range(count)])
    return made, f"{where}: {count:,} {'different' if distinct else 'equal'}"


def _inside(element: Any) -> int:
    """Elements of the arrays in an element."""
    if not isinstance(element, Struct):
        return 0
    kind: Any = type(element)
    held = [getattr(element, item.name) for item in kind.fields if isinstance(item.type, Array)]
    return sum(len(each or ()) + sum(_inside(inner) for inner in each or ()) for each in held)


def _element(kind: Any, model: Any, number: int) -> Any:
    if isinstance(model, Struct):
        made = copy.deepcopy(model)
        fields: Any = kind.fields
        for item in fields:
            if item.type is STRING and number:
                setattr(made, item.name, f"{getattr(made, item.name) or 'x'}-{number}")
            elif (
                item.type is INT32 and number and item.name in ("partition", "partition_index", "partition_id", "index")
            ):
                setattr(made, item.name, number)
        return made
    if kind is STRING:
        return f"name-{number}"
    if kind in (INT8, INT16, INT32, INT64):
        return number % 100
    assert kind is UUID, kind
    return model


class Bystander(threading.Thread):
    """Sends ApiVersions all the time, and watches the broker's memory."""

    def __init__(self, bootstrap: str, pid: int) -> None:
        super().__init__(daemon=True)
        self._address, self._pid = bootstrap, pid
        self._ends = threading.Event()
        self._figures = threading.Lock()
        self._slowest = self._most_mb = 0.0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with RawConnection(self._address, 120.0) as connection:
                request = ApiVersionsRequest(client_software_name="bystander", client_software_version="1")
                while not self._ends.wait(0.002):
                    began = time.monotonic()
                    connection.ask(request, 3, ApiVersionsResponse)
                    waited, held_mb = time.monotonic() - began, resident_mb(self._pid)
                    with self._figures:
                        self._slowest, self._most_mb = max(self._slowest, waited), max(self._most_mb, held_mb)
        except BaseException as failure:
            self.failure = failure

    def take(self) -> tuple[float, float]:
        """The longest wait in seconds, and the broker's most memory in MB, since the last call."""
        with self._figures:
            taken = self._slowest, self._most_mb
            self._slowest = self._most_mb = 0.0
        return taken

    def __enter__(self) -> Bystander:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self.join()


def trials(served: Served, keys: list[int], *, newest_only: bool) -> Iterator[Felt]:
    """Sends one request of this kind after the other to the broker, which has no other clients."""
    broker = served.broker
    with Bystander(broker.bootstrap, broker.pid) as bystander:
        for key in keys:
            versions = served.announced[key]
            for version in versions[-1:] if newest_only else versions:
                room = (CREATION_ELEMENTS_MAX if key in _CREATION else REQUEST_ELEMENTS_MAX) + 50
                number = 0
                while True:
                    made = [
                        filled(SENSIBLE[key](served, version), version, room, number, distinct)
                        for distinct in (False, True)
                    ]
                    if made[0] is None:
                        break
                    number += 1
                    for request in made:
                        assert request is not None
                        yield _felt(served, bystander, key, version, *request)


def _felt(served: Served, bystander: Bystander, key: int, version: int, request: Message, where: str) -> Felt:
    broker = served.broker
    before = resident_mb(broker.pid)
    with RawConnection(broker.bootstrap, _PATIENCE_SECONDS) as connection:
        frame = connection.frame(request, version)
        bystander.take()
        outcome = "answered"
        try:
            connection.socket.sendall(struct.pack(">i", len(frame)) + frame)
            connection.receive_frame()
        except (ClosedByBrokerError, ConnectionError):
            outcome = "closed"
        except TimeoutError:
            outcome = "waits"
        time.sleep(0.05)
        slowest, most = bystander.take()
        most = max(most, before)
    if most - before > 20:
        time.sleep(2)
    assert bystander.failure is None, bystander.failure
    what = f"{type(request).__name__} {version}{where} ({outcome})"
    return Felt(what, len(frame) / 1e6, slowest, most - before, resident_mb(broker.pid) - before)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.processes.fuzz.largest_requests", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--api", type=int, action="append", metavar="KEY", help="Only this API; may be repeated.")
    parser.add_argument("--newest", action="store_true", help="Only each API's newest version.")
    parser.add_argument(
        "--all", action="store_true", help="A line for each request, not for those alone that anybody felt."
    )
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory) / "data", settings=SETTINGS) as broker,
    ):
        served = Served(broker)
        keys = options.api or [key for key in served.announced if key in SENSIBLE]
        worst = worst_mb = 0.0
        count = 0
        for felt in trials(served, keys, newest_only=options.newest):
            count += 1
            worst, worst_mb = max(worst, felt.bystander_seconds), max(worst_mb, felt.grown_mb)
            if (
                options.all
                or felt.bystander_seconds > 0.2
                or felt.grown_mb > 4 * felt.request_mb + 10
                or felt.left_mb > 10
            ):
                print(
                    f"{felt.what:90} {felt.request_mb:7.1f} MB  bystander {felt.bystander_seconds:6.3f} s  memory "
                    f"+{felt.grown_mb:6.1f} MB, "
                    f"{felt.left_mb:6.1f} MB left",
                    flush=True,
                )
        print(f"{count} requests: a bystander waited {worst:.3f} s at most, memory grew by {worst_mb:.1f} MB at most")


#: Topics that a request creates are deleted soon after the trial, and groups do not wait for missing members.
SETTINGS = {"auto.create.topics.enable": "false", "delete.topic.enable": "true"}

if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
