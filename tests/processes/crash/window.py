"""Kills a broker between the append of a request and its acknowledgement.

A request is sent, and after some microseconds the broker is paused (SIGSTOP). Then there are three cases: the file has
not grown (too early), an answer has arrived (too late), or the file has grown and no answer has arrived. In the third
case the broker is killed. Otherwise it is resumed, its answer is received, and the delay of the next request is
changed a little. The broker's code contains nothing for this.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from jesenska.testing import BrokerProcess
from tests.raw_connection import ClosedByBrokerError, RawConnection

_ATTEMPTS_MAX = 1500


def log_bytes(directory: Path) -> int:
    """The size of the segments of a partition."""
    return sum(path.stat().st_size for path in directory.glob("*.log"))


class Window:
    """Finds the moment, and keeps its approximate delay. `hits` and `attempts` are counted over all kills."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._delay_seconds = 0.0002
        self.hits = 0
        self.attempts = 0

    def kill(
        self,
        broker: BrokerProcess,
        frame_of: Callable[[RawConnection], bytes],
        grown: Callable[[], int],
        answered: Callable[[RawConnection], None],
    ) -> bool:
        """Sends one request after another (`frame_of`) until the broker was killed in the window. `answered` gets the
        answer of each request that was not. Returns False if the moment was not found; the broker is killed then,
        too."""
        with RawConnection(broker.bootstrap) as connection:
            for _ in range(_ATTEMPTS_MAX):
                self.attempts += 1
                frame = frame_of(connection)
                before = grown()
                connection.send_frame(frame)
                until = time.perf_counter() + self._delay_seconds * self._chance.uniform(0.9, 1.1)
                while time.perf_counter() < until:
                    pass
                os.kill(broker.pid, signal.SIGSTOP)
                os.waitpid(broker.pid, os.WUNTRACED)
                has_grown, has_answer = grown() > before, self._has_answer(connection)
                if has_grown and not has_answer:
                    broker.kill()
                    if self._nothing_comes(connection):
                        self.hits += 1
                        return True
                    return False
                os.kill(broker.pid, signal.SIGCONT)
                self._delay_seconds *= 0.95 if has_answer else 1.05
                answered(connection)
        broker.kill()
        return False

    def _has_answer(self, connection: RawConnection) -> bool:
        connection.socket.setblocking(False)
        try:
            return bool(connection.socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False
        finally:
            connection.socket.settimeout(20)

    def _nothing_comes(self, connection: RawConnection) -> bool:
        try:
            connection.receive_frame()
        except ClosedByBrokerError:
            return True
        return False
