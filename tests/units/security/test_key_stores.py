"""Stores made by Java's keytool: their contents, and the sentence for a store that cannot be used.

keytool -genkeypair -alias anna -keyalg EC -groupname secp256r1 -validity 36500 -storetype JKS \\
  -dname 'CN=Anna #1 \\, B, OU=Shop, O="Example, Inc.", L=Brno, C=CZ' -storepass storepass -keypass keypass
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jesenska.base.errors import InvalidConfigError
from jesenska.security.authority import new_authority
from jesenska.security.key_stores import key_and_chain, pem_key_and_chain, trusted_certificates
from jesenska.security.tls import TlsContexts, TlsSettings, client_context, server_context
from jesenska.security.x500 import DerError, purposes, subject_name

_STORES = Path(__file__).parent / "stores"
_ANNA = (_STORES / "anna.der").read_bytes()


def store(name: str) -> str:
    return str(_STORES / name)


def test_the_name_of_a_subject_is_the_one_that_java_gives() -> None:
    assert subject_name(_ANNA) == r"CN=Anna \#1 \, B,OU=Shop,O=Example\, Inc.,L=Brno,C=CZ"


@pytest.mark.parametrize("data", [b"", b"\x30", b"\x30\x03\x02\x01\x05", _ANNA[:100], bytes(50)])
def test_bytes_that_are_not_a_certificate_have_no_name(data: bytes) -> None:
    with pytest.raises(DerError):
        subject_name(data)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
@pytest.mark.parametrize("name", ["trust.jks", "trust.p12"])
def test_trusted_certificates_are_read_whatever_type_is_asked_for(kind: str, name: str) -> None:
    assert ssl.PEM_cert_to_DER_cert(trusted_certificates(kind, store(name), "storepass")) == _ANNA


def test_a_private_key_of_java_has_its_own_password() -> None:
    found = key_and_chain("JKS", store("key.jks"), "storepass", "keypass")
    assert ssl.PEM_cert_to_DER_cert(found.chain) == _ANNA
    server_context(TlsSettings(keystore_type="PEM", keystore_key=found.key + found.chain))
    assert "PRIVATE" not in repr(found)


def test_a_context_is_made_from_either_kind_of_store() -> None:
    server_context(
        TlsSettings(keystore_location=store("key.jks"), keystore_password="storepass", key_password="keypass")
    )
    server_context(TlsSettings(keystore_location=store("key.p12"), keystore_password="storepass"))
    client_context(TlsSettings(truststore_location=store("trust.jks"), truststore_password="storepass"))


@pytest.mark.parametrize(
    ("name", "password", "key_password"),
    [("key.jks", "wrong", "keypass"), ("key.jks", "storepass", "wrong"), ("key.p12", "wrong", None)],
)
def test_a_wrong_password_is_one_sentence_without_the_password(
    name: str, password: str, key_password: str | None
) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        key_and_chain("JKS", store(name), password, key_password)
    assert "password is wrong" in str(caught.value)
    assert "wrong:" not in str(caught.value)
    assert "storepass" not in str(caught.value)


@pytest.mark.parametrize("size", [0, 3, 5, 60, 200, 500])
def test_a_store_that_is_cut_off_is_damaged(tmp_path: Path, size: int) -> None:
    path = tmp_path / "store"
    path.write_bytes((_STORES / "key.jks").read_bytes()[:size])
    with pytest.raises(InvalidConfigError):
        key_and_chain("JKS", str(path), "storepass", "keypass")


def test_a_pem_in_one_line_is_read_as_property_files_have_it() -> None:
    found = key_and_chain("JKS", store("key.jks"), "storepass", "keypass")
    in_a_line = (found.key + found.chain).replace("\n", " ")
    read = pem_key_and_chain(in_a_line, None, "The setting")
    assert (read.key, read.chain) == (found.key, found.chain)


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", "key"])
def test_a_pem_without_a_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"^The setting has 0 private keys"):
        pem_key_and_chain(text, None, "The setting")


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_pem_file_that_is_not_called_pem_names_the_setting(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(ssl.DER_cert_to_PEM_cert(_ANNA))
    with pytest.raises(InvalidConfigError, match=f"{path} is PEM: set .*ssl.truststore.type"):
        trusted_certificates(kind, str(path), None)


def test_a_listener_does_not_show_a_certificate_that_is_for_clients_only(tmp_path: Path) -> None:
    authority = new_authority("tests", datetime.now(UTC))
    path, failures = tmp_path / "broker.pem", list[str]()
    path.write_text(authority.issue("broker", ["localhost"], datetime.now(UTC)))
    contexts = TlsContexts(TlsSettings(keystore_type="PEM", keystore_location=str(path)), failures.append)
    first = contexts.current()
    path.write_text(authority.issue("anna", [], datetime.now(UTC)))
    assert not contexts.look()
    assert contexts.current() is first
    assert failures == [
        f"The certificate of {path} is not for servers, so no client would accept it: use one whose extended key usage "
        "contains serverAuth."
    ]
    assert purposes(_ANNA) is None


def test_a_changed_file_gives_a_new_context_and_a_broken_one_leaves_the_old(tmp_path: Path) -> None:
    found = key_and_chain("JKS", store("key.jks"), "storepass", "keypass")
    path, failures = tmp_path / "broker.pem", list[str]()
    path.write_text(found.key + found.chain)
    contexts = TlsContexts(TlsSettings(keystore_type="PEM", keystore_location=str(path)), failures.append)
    first = contexts.current()
    assert not contexts.look()
    path.write_text(found.key + found.chain + "\n")
    assert contexts.look()
    second = contexts.current()
    assert second is not first
    path.write_text("nothing")
    assert not contexts.look()
    assert contexts.current() is second
    assert len(failures) == 1
    path.unlink()
    assert not contexts.look()
    assert len(failures) == 2


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (TlsSettings(), "ssl.keystore.location"),
        (TlsSettings(keystore_location="/nowhere/key.jks"), "/nowhere/key.jks"),
        (TlsSettings(enabled_protocols=("SSLv3",)), "ssl.enabled.protocols"),
    ],
)
def test_a_listener_without_what_it_needs_names_the_setting(settings: TlsSettings, named: str) -> None:
    with pytest.raises(InvalidConfigError, match=named):
        server_context(settings)
