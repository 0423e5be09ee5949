"""Logs requests that this broker does not serve. Such a request closes the connection: an old client then tries other
versions, but its user does not see why. So the first such request of each client is logged."""

from __future__ import annotations

import logging
from typing import Final

from jesenska.wire.api_names import API_NAMES
from jesenska.wire.codec import MalformedMessageError
from jesenska.wire.headers import read_client_id

logger = logging.getLogger(__name__)

#: Most pairs of a client and a request that are stored. Further pairs are not logged.
REMEMBERED_MAX: Final = 1000
_CLIENT_ID_MAX_CHARS = 100
_CLIENT_ID_AT = 8


class UnservedRequests:
    """Logs requests that are not served: one line at INFO for each address, client id and kind of request."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, str, object]] = set()

    def tell(self, client_host: str, frame: memoryview, key: int, version: int) -> None:
        """Logs a request that is not served. `frame` is the request, from its API key on. The client id is read from
        the position where most requests have it."""
        if len(self._logged) >= REMEMBERED_MAX:
            return
        try:
            client_id = read_client_id(frame, _CLIENT_ID_AT, len(frame))[0]
        except MalformedMessageError:
            client_id = None
        name = API_NAMES.get(key, "an unknown API")
        what = f"{name} (API key {key}, version {version}), which this broker does not serve: its connection was closed"
        self.tell_of(client_host, client_id, key, what)

    def tell_of(self, client_host: str, client_id: str | None, kind: object, what: str) -> None:
        """Logs that a client has asked for something that is not served; `what` describes it. Each `kind` is logged
        once per client."""
        shown = repr((client_id or "")[:_CLIENT_ID_MAX_CHARS])
        if (client_host, shown, kind) in self._logged or len(self._logged) >= REMEMBERED_MAX:
            return
        self._logged.add((client_host, shown, kind))
        logger.info("client %s at %s asked for %s", shown, client_host, what)
