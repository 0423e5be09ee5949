"""The keys with which a broker verifies tokens (OAUTHBEARER). They come from a JWKS document, which is read from a
file or from a server:

    a file      read at the start, and again when it has changed
    a server    read by another thread at the start, after each sasl.oauthbearer.jwks.endpoint.refresh.ms, and when a
                token names a key that is not in the document; after a failure, with growing pauses

While the document cannot be read, tokens are verified with the keys of the last document. A token with an unknown key
is refused at once, and the document is read again. So a later token with this key is accepted if the server has the
key. Unknown keys cause at most one read in ten seconds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

from jesenska.base.backoff import Backoff
from jesenska.base.errors import InvalidConfigError
from jesenska.security.oauthbearer.documents import Address, DocumentError
from jesenska.security.oauthbearer.validators import Key, KeySet, parse_keys

logger = logging.getLogger(__name__)

#: The pause between two reads that unknown keys have caused.
_UNKNOWN_PAUSE_SECONDS: Final = 10.0

#: A function that runs a blocking function on another thread.
InThread = Callable[[Callable[[], bytes]], "Future[bytes]"]


def in_daemon_thread(work: Callable[[], bytes]) -> Future[bytes]:
    """Runs a function on a daemon thread, so that the process can end while the function runs."""
    future: Future[bytes] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="jesenska-keys", daemon=True).start()
    return future


class SigningKeys:
    """The keys of one document. `read` returns the document and may block. `look` is called about once a second, and
    never blocks for a server's document."""

    def __init__(
        self,
        address: Address,
        read: Callable[[], bytes],
        in_thread: InThread,
        monotonic: Callable[[], float],
        *,
        refresh_seconds: float,
        backoff: Backoff,
    ) -> None:
        self._address = address
        self._read = read
        self._in_thread = in_thread
        self._monotonic = monotonic
        self._refresh_seconds = refresh_seconds
        self._backoff = backoff
        self._failures = 0
        self._keys = KeySet()
        self._reading: Future[bytes] | None = None
        self._read_at = float("-inf")
        self._unknown_at = float("-inf")
        self._due_at = monotonic()
        self._stamp: tuple[int, int] | None = None
        if address.path is not None:
            try:
                self._stamp = self._stamp_of_file()
                self._keys = parse_keys(read())
            except (DocumentError, ValueError, OSError) as error:
                raise InvalidConfigError(f"sasl.oauthbearer.jwks.endpoint.url={address}: {error}.") from error
        else:
            parse_keys(b'{"keys":[]}')  # reports a missing package at the start
            self.look()

    def of(self, key_id: str | None, algorithm: str) -> Sequence[Key]:
        found = self._keys.of(key_id, algorithm)
        if not found and self._address.path is None:
            now = self._monotonic()
            if now - self._unknown_at >= _UNKNOWN_PAUSE_SECONDS and self._read_at > float("-inf"):
                self._unknown_at = self._due_at = now
                self.look()
        return found

    def look(self) -> None:
        """Uses the keys of a document that has been read, and begins to read the document again if it is time."""
        if self._address.path is not None:
            self._look_at_file()
            return
        if self._reading is not None and self._reading.done():
            done, self._reading = self._reading, None
            self._take(done)
        if self._reading is None and self._monotonic() >= self._due_at:
            self._reading = self._in_thread(self._read)

    def _take(self, done: Future[bytes]) -> None:
        now = self._monotonic()
        try:
            self._keys = parse_keys(done.result())
        except (DocumentError, ValueError) as error:
            self._failures += 1
            self._due_at = now + self._backoff.seconds(self._failures)
            logger.error(
                "the keys of OAUTHBEARER cannot be read: %s; tokens are checked with %d older keys, and the keys are "
                "read again",
                error,
                len(self._keys),
            )
            return
        self._failures = 0
        self._read_at = now
        self._due_at = now + self._refresh_seconds
        logger.info("%d keys of OAUTHBEARER were read from %s", len(self._keys), self._address)

    def _look_at_file(self) -> None:
        try:
            stamp = self._stamp_of_file()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._keys = parse_keys(self._read())
        except (DocumentError, ValueError, OSError) as error:
            logger.error(
                "the keys of OAUTHBEARER in %s cannot be read: %s; the older keys stay in use", self._address, error
            )

    def _stamp_of_file(self) -> tuple[int, int]:
        assert self._address.path is not None
        found = self._address.path.stat()
        return found.st_mtime_ns, found.st_size
