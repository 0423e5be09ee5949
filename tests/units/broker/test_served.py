"""The table of the served APIs, the handlers' files, and the APIs of the `wire` package agree."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from jesenska.broker import handlers
from jesenska.broker.requests.gate import Gate, served_by
from jesenska.broker.requests.served import VERSIONS
from jesenska.wire.api_names import API_NAMES
from jesenska.wire.codec import encode
from jesenska.wire.headers import request_head
from jesenska.wire.language import BYTES, RECORDS, Array, Message
from jesenska.wire.messages.k39_renew_delegation_token import RenewDelegationTokenRequest
from jesenska.wire.messages.k40_expire_delegation_token import ExpireDelegationTokenRequest
from jesenska.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestUpsertion,
)
from jesenska.wire.registry import APIS


@pytest.mark.parametrize("key", sorted(VERSIONS))
def test_a_key_in_the_table_has_a_handler_with_its_versions(key: int) -> None:
    served = served_by(key)
    assert served is not None
    assert (served.api.key, served.min_version, served.max_version) == (key, *VERSIONS[key])


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (RenewDelegationTokenRequest(hmac=b"secret" * 9), 2),
        (ExpireDelegationTokenRequest(hmac=b"secret" * 9), 2),
        (
            AlterUserScramCredentialsRequest(
                deletions=[],
                upsertions=[
                    AlterUserScramCredentialsRequestUpsertion(
                        name="anna", mechanism=1, iterations=4096, salt=b"salt" * 4, salted_password=b"salted" * 5
                    )
                ],
            ),
            0,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_handler_that_reads_its_request_later_has_the_bytes_for_itself(request_: Message, version: int) -> None:
    """The bytes of the next request, of any client, are read into the same buffer."""
    api = APIS[request_.api_key]
    head = request_head(api.key, version, 1, "x", api.request_header_version(version))
    buffer = bytearray(bytes(head) + encode(request_, version))
    admitted = Gate(lambda: 0).admit(memoryview(buffer), "127.0.0.1")[-1]
    buffer[:] = b"\xff" * len(buffer)
    assert encode(admitted, version) == encode(request_, version)


#: Handlers that are no coroutine functions and have bytes in their requests: they copy what they read later.
_COPY_THEMSELVES = {0, 11, 14, 36}


@pytest.mark.parametrize("key", sorted(VERSIONS))
def test_bytes_of_a_request_are_kept_where_they_are_read_later(key: int) -> None:
    served = served_by(key)
    assert served is not None
    assert served.keeps or key in _COPY_THEMSELVES or not _has_bytes(APIS[key].request)


def _has_bytes(kind: Any) -> bool:
    """True if a message, or a structure in it, has a field of bytes."""
    for item in kind.fields:
        inner = item.type
        while isinstance(inner, Array):
            inner = inner.element
        if inner in (BYTES, RECORDS) or (hasattr(inner, "fields") and _has_bytes(inner)):
            return True
    return False


def test_every_handler_stands_in_the_table() -> None:
    assert handlers.all_keys() == list(VERSIONS)


def test_a_key_that_is_not_served_has_no_handler() -> None:
    assert served_by(68) is None
    assert served_by(-1) is None


def test_names_of_apis_are_those_of_their_requests() -> None:
    assert {key: api.name for key, api in APIS.items()} == {key: API_NAMES[key] for key in APIS}


@pytest.mark.parametrize("key", sorted(APIS))
def test_an_api_knows_its_request_and_its_response(key: int) -> None:
    api = APIS[key]
    assert (api.request.api_key, api.response.api_key, api.key) == (key, key, key)
    assert (api.request.__name__, api.response.__name__) == (f"{api.name}Request", f"{api.name}Response")


def test_an_unknown_api_is_a_missing_key() -> None:
    assert 68 not in APIS
    with pytest.raises(KeyError):
        APIS[68]


def test_a_handler_that_cannot_be_imported_now_is_told_and_the_others_are_imported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    imported = []

    def load(key: int) -> None:
        if key == 1:
            raise OSError(24, "Too many open files")
        imported.append(key)

    for key, module in handlers._MODULES.items():
        if key in (1, 2, 3):
            monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(handlers, "load", load)
    monkeypatch.setattr(handlers, "_PAUSE_SECONDS", 0)
    asyncio.run(handlers.load_all())
    assert {2, 3} <= set(imported)
    assert [record.getMessage() for record in caplog.records if "API key 1 " in record.getMessage()]
