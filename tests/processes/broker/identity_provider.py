"""An identity provider on loopback, over TLS: a set of keys at /keys, and tokens at /token for one client."""

from __future__ import annotations

import json
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from tests.processes.broker.secured import certificate
from tests.units.security.test_oauthbearer import KEYS, signed

CLIENT, SECRET = "anna-client", "anna-client-sEcret"


class IdentityProvider:
    """`keys` is the document that is served; `lifetime_seconds` and `user` are those of new tokens; `requests` are the
    paths that clients have asked for, and `scopes` those of tokens."""

    def __init__(self, directory: Path) -> None:
        self.keys = KEYS
        self.lifetime_seconds = 3600.0
        self.user = "anna"
        self.requests: list[str] = []
        self.scopes: list[str] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.requests.append(self.path)
                self._answer(200, provider.keys)

            def do_POST(self) -> None:
                provider.requests.append(self.path)
                body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                right = "Basic " + b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
                if self.headers["Authorization"] != right or body.get("grant_type") != ["client_credentials"]:
                    self._answer(401, b'{"error":"invalid_client"}')
                    return
                provider.scopes.append(body.get("scope", [""])[0])
                self._answer(200, json.dumps({"access_token": provider.token(), "token_type": "bearer"}).encode())

            def _answer(self, status: int, document: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(document)))
                self.end_headers()
                self.wfile.write(document)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        stored = directory / "provider.pem"
        stored.write_text(certificate("provider", "127.0.0.1", "localhost"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(stored)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def url(self, path: str) -> str:
        return f"https://localhost:{self._server.server_address[1]}/{path}"

    def token(self) -> str:
        now = time.time()
        return signed({"sub": self.user, "iat": now, "exp": now + self.lifetime_seconds, "scope": "read"})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def identity_provider(directory: Path) -> Iterator[IdentityProvider]:
    provider = IdentityProvider(directory)
    try:
        yield provider
    finally:
        provider.close()
