"""A small certificate authority. It makes certificates for brokers and clients, for `jesenska init --secure` and
`jesenska cert`. It needs `cryptography` (pip install "jesenska[security]").

Keys are on the curve P-256. A key file can be read only by its owner."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jesenska.base.errors import JesenskaError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 825
#: How long before its creation a certificate begins to be valid, because the clocks of two machines may differ.
_EARLIER: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Authority:
    """The certificate and the key of a certificate authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        """Returns the certificate of the authority in PEM. Clients and brokers must trust this certificate."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(self, common_name: str, hosts: Sequence[str], now: datetime, days: int = CERTIFICATE_DAYS) -> str:
        """Returns in PEM a new key, a certificate for these hosts (names and addresses), and the authority's
        certificate."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = (
            _builder(common_name, self.certificate.subject, key, now, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(_authority_key(self.key), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False
            )
        return _key_pem(key) + _signed(builder, self.key) + self.pem


def new_authority(common_name: str, now: datetime) -> Authority:
    """Returns a certificate authority with a new key."""
    _require_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = _distinguished(common_name)
    builder = (
        _builder(common_name, name, key, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage_of_authority(), critical=True)
    )
    return Authority(builder.sign(key, hashes.SHA256()), key)


def write_authority(authority: Authority, directory: Path) -> None:
    """Writes the authority's files `ca.pem` and `ca.key`."""
    (directory / "ca.pem").write_text(authority.pem)
    write_secret(directory / "ca.key", _key_pem(authority.key))


def read_authority(directory: Path) -> Authority:
    """Returns the certificate authority in a directory. Raises JesenskaError, with a message of one sentence, if the
    directory has no certificate authority."""
    _require_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if (directory / "ca.pem").exists() and not (directory / "ca.key").exists():
        raise JesenskaError(
            f"The key of the authority, {directory / 'ca.key'}, is missing, so no certificate can be made: put "
            "the key file back."
        )
    try:
        certificate = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
        key = load_pem_private_key((directory / "ca.key").read_bytes(), None)
    except (OSError, ValueError) as error:
        raise JesenskaError(
            f"{directory} has no certificate authority ({error}): make one with jesenska init DIR --secure."
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise JesenskaError(f"The key in {directory / 'ca.key'} is not of an elliptic curve.")
    return Authority(certificate, key)


def hosts_of(pem: bytes) -> list[str]:
    """Returns the hosts (names and addresses) of the first certificate in a PEM file. For a client's certificate the
    list is empty."""
    _require_cryptography()
    from cryptography import x509

    begin = pem.find(b"-----BEGIN CERTIFICATE-----")
    try:
        certificate = x509.load_pem_x509_certificate(pem[max(begin, 0) :])
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (ValueError, x509.ExtensionNotFound):
        return []
    return [str(name.value) for name in found.value]


def write_secret(path: Path, text: str) -> None:
    """Writes a file that only its owner can read. An existing file of that name is replaced."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ModuleNotFoundError:
        raise JesenskaError(
            'Certificates are made by a package that is not installed: pip install "jesenska[security]".'
        ) from None


def _builder(
    common_name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(_distinguished(common_name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _distinguished(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage_of_authority() -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_key(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    from cryptography import x509

    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
