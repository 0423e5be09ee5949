"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, KIP-84): both sides of the exchange, and the stored credentials.

    client first    n,,n=USER,r=CLIENT_NONCE[,EXTENSION=VALUE]
    server first    r=CLIENT_NONCE SERVER_NONCE,s=SALT,i=ITERATIONS
    client final    c=biws,r=NONCE,p=PROOF
    server final    v=SIGNATURE, or e=ERROR

    salted password  = PBKDF2(password, salt, iterations)
    client key       = HMAC(salted password, "Client Key");   stored key = H(client key)
    server key       = HMAC(salted password, "Server Key")
    proof            = client key XOR HMAC(stored key, auth message)
    signature        = HMAC(server key, auth message)
    auth message     = client first without "n,,", server first, client final without the proof, with commas between

A broker stores the salt, stored key, server key and iterations of a user in the format of Kafka's nodes in
/config/users: `salt=..,stored_key=..,server_key=..,iterations=..`, with base64. The extension `tokenauth=true` means
that the user is the id of a delegation token. The caller passes the nonces and the salt."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Final

from jesenska.security.sasl import SaslError

#: The hash functions by the name of the SCRAM mechanism.
MECHANISMS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
#: The SCRAM mechanisms by their codes in requests (KIP-554).
MECHANISM_CODES: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
_CLIENT_FIRST = re.compile(
    r"(?P<gs2>[ny]|p=[^,]+),(?:a=(?P<authzid>[^,]*))?,n=(?P<user>[^,]+),r=(?P<nonce>[^,]+)(?P<more>,.*)?"
)
_SERVER_FIRST = re.compile(r"r=(?P<nonce>[^,]+),s=(?P<salt>[^,]+),i=(?P<iterations>\d{1,9})(?:,.*)?")
_CLIENT_FINAL = re.compile(r"c=(?P<channel>[^,]+),r=(?P<nonce>[^,]+)(?P<more>,.*)?,p=(?P<proof>[^,]+)")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A user's stored credential for one SCRAM mechanism. It does not contain the password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"

    def as_text(self) -> str:
        """Returns the credential in the text format of Kafka's nodes in /config/users."""
        salt, stored, server = (_text(part) for part in (self.salt, self.stored_key, self.server_key))
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"


def parse_credential(text: str) -> ScramCredential:
    """Returns the credential in a text from /config/users. Raises ValueError if the text is not a credential."""
    fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    try:
        return ScramCredential(
            _bytes(fields["salt"]),
            _bytes(fields["stored_key"]),
            _bytes(fields["server_key"]),
            int(fields["iterations"]),
        )
    except (KeyError, binascii.Error) as error:
        raise ValueError("the text is not a SCRAM credential") from error


def make_credential(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Returns the credential that is stored for a password."""
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Returns the salted password. kafka-configs sends it in AlterUserScramCredentials in place of the password."""
    return hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Returns the credential that is stored for a salted password."""
    algorithm = MECHANISMS[mechanism]
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", algorithm), iterations)


class ScramServer:
    """The server's side of one SCRAM exchange. The caller looks up the credential of the user that `first` returns,
    and passes it to `challenge`."""

    def __init__(self, mechanism: str, server_nonce: str) -> None:
        self._algorithm = MECHANISMS[mechanism]
        self._server_nonce = server_nonce
        self.user = ""
        #: True if the user is the id of a delegation token.
        self.is_token = False
        self._nonce = ""
        self._gs2 = ""
        self._client_first = ""
        self._server_first = ""
        self._credential: ScramCredential | None = None

    def first(self, message: bytes) -> str:
        """Reads the client's first message and returns the user's name. Raises SaslError if the message is
        malformed."""
        text = _decoded(message)
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None or found["gs2"].startswith("p="):
            raise SaslError("a malformed first message")
        user = found["user"].replace("=2C", ",").replace("=3D", "=")
        if found["authzid"] not in (None, "", found["user"]):
            raise SaslError("another authorization id than the user")
        self.user, self._nonce = user, found["nonce"] + self._server_nonce
        self.is_token = "tokenauth=true" in (found["more"] or "").lower().split(",")
        self._gs2 = text[: text.index("n=", len(found["gs2"]))]
        self._client_first = text[len(self._gs2) :]
        return user

    def challenge(self, credential: ScramCredential) -> bytes:
        """Returns the server's first message, which contains the salt and iterations of the user's credential."""
        self._credential = credential
        self._server_first = f"r={self._nonce},s={_text(credential.salt)},i={credential.iterations}"
        return self._server_first.encode()

    def final(self, message: bytes) -> bytes:
        """Checks the client's final message and returns the server's final message. Raises SaslError if the message is
        malformed or its proof is wrong."""
        credential = self._credential
        found = _CLIENT_FINAL.fullmatch(_decoded(message))
        if found is None or credential is None:
            raise SaslError("a malformed final message")
        if found["nonce"] != self._nonce or _decoded_base64(found["channel"]) != self._gs2.encode():
            raise SaslError("another nonce or channel binding")
        without_proof = f"c={found['channel']},r={found['nonce']}{found['more'] or ''}"
        auth_message = f"{self._client_first},{self._server_first},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, auth_message, self._algorithm)
        proof = _decoded_base64(found["proof"])
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        stored_key = hashlib.new(self._algorithm, client_key).digest()
        if len(proof) != len(signature) or not hmac.compare_digest(stored_key, credential.stored_key):
            raise SaslError("a wrong proof")
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, auth_message, self._algorithm))


class ScramClient:
    """The client's side of one SCRAM exchange."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False) -> None:
        self._mechanism = mechanism
        self._algorithm = MECHANISMS[mechanism]
        self._password = password
        self._nonce = nonce
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={escaped},r={nonce}" + (",tokenauth=true" if is_token else "")
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first}".encode()

    def final(self, message: bytes) -> bytes:
        """Returns the client's final message, in answer to the server's first message. Raises SaslError if the
        server's message is malformed, or if the server's number of iterations is too small or above 100 times
        `MAX_ITERATIONS`."""
        text = _decoded(message)
        found = _SERVER_FIRST.fullmatch(text)
        if found is None or not found["nonce"].startswith(self._nonce) or found["nonce"] == self._nonce:
            raise SaslError("the server's first message is malformed")
        iterations = int(found["iterations"])
        if not MIN_ITERATIONS <= iterations <= 100 * MAX_ITERATIONS:
            raise SaslError(f"the server asks for {iterations} iterations")
        salted = salted_password(self._mechanism, self._password, _decoded_base64(found["salt"]), iterations)
        client_key = hmac.digest(salted, b"Client Key", self._algorithm)
        stored_key = hashlib.new(self._algorithm, client_key).digest()
        without_proof = f"c=biws,r={found['nonce']}"
        auth_message = f"{self._first},{text},{without_proof}".encode()
        signature = hmac.digest(stored_key, auth_message, self._algorithm)
        self._signature = hmac.digest(
            hmac.digest(salted, b"Server Key", self._algorithm), auth_message, self._algorithm
        )
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without_proof},p={_text(proof)}".encode()

    def finished(self, message: bytes) -> None:
        """Checks the server's final message. Raises SaslError if the server has refused the login, or if the server's
        signature shows that the server does not know the credential."""
        text = _decoded(message)
        if text.startswith("e="):
            raise SaslError(f"the server has refused: {text[2:]}")
        if not text.startswith("v=") or not hmac.compare_digest(
            _decoded_base64(text[2:].partition(",")[0]), self._signature
        ):
            raise SaslError("the server's signature is wrong")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _decoded(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise SaslError("a message that is not UTF-8") from error


def _decoded_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SaslError("a field that is not base64") from error
