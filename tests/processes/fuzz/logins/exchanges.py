"""The exchanges of hostile clients, each made from its number.

    mutated     a login with a wrong secret, whose messages and frames are mutated; ends with a request
    forged      a login that is well formed and almost right: another proof, nonce, user, token
    disordered  requests in a wrong order, other requests before the login, frames of any size
    right       a login with the right secret, whole, in pieces, or in one packet: must be let in
    again       a second login on the same connection as another user
    tls         records of TLS, mutated, at every step of a handshake

`may_enter` says if the broker may serve the client afterwards; None where both are right."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from jesenska.wire.language import Message
from jesenska.wire.messages.k03_metadata import MetadataRequest
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest
from jesenska.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from jesenska.wire.messages.k38_create_delegation_token import CreateDelegationTokenRequest
from tests.processes.fuzz.logins import records
from tests.processes.fuzz.logins.secrets import (
    NONCE,
    PASSWORDS,
    Target,
    forged_tokens,
    plain_login,
    right_token,
    scram_first,
    scram_proof,
    token_message,
    with_other_signature,
)
from tests.processes.fuzz.logins.wires import PROBE, PlainWire, Step, Steps, TlsWire, Wire, frame, probe
from tests.processes.fuzz.mutate import hostile

_Run = Generator[Step, bytes | None, bool]
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_LIMIT_BYTES: Final = 524_288


class Exchange(NamedTuple):
    """One connection of a hostile client. `steps` returns True if the broker has served a request at its end."""

    kind: str
    address: tuple[str, int]
    steps: _Run
    may_enter: bool | None


def _same(message: bytes) -> bytes:
    return message


class _Login:
    """One login over a wire. `bend` changes messages, `bend_frame` changes frames."""

    def __init__(self, wire: Wire, source: random.Random) -> None:
        self.wire = wire
        self.source = source
        self.bend: Callable[[bytes], bytes] = _same
        self.bend_frame: Callable[[bytes], bytes] = _same
        #: 0: messages are sent as frames without a header.
        self.handshake_version = source.choice((0, 1, 1))
        self.version = source.randrange(3)
        #: Pieces of this many bytes; 0 for whole frames.
        self.piece_bytes = 0

    def handshake(self, mechanism: str) -> Steps:
        return self._ask(frame(SaslHandshakeRequest(mechanism=mechanism), self.handshake_version))

    def say(self, message: bytes) -> Steps:
        """Sends a message of the mechanism, and returns that of the broker."""
        message = self.bend(message)
        if self.handshake_version == 0:
            return (yield from self._ask(len(message).to_bytes(4, "big") + message))
        answer = yield from self._ask(frame(SaslAuthenticateRequest(auth_bytes=message), self.version))
        return None if answer is None else _message_in(answer, self.version)

    def _ask(self, data: bytes) -> Steps:
        bent = self.bend_frame(data)
        if self.piece_bytes:
            return self.wire.drip(bent, self.piece_bytes)
        # Who has sent a broken frame mostly hangs up: otherwise the broker would wait for the rest of the frame.
        return self.wire.ask(bent, ends=bent is not data and self.source.random() < 0.8)

    def plain(self, user: str, password: str) -> Steps:
        yield from self.handshake("PLAIN")
        return (yield from self.say(plain_login(user, password)))

    def oauthbearer(self, token: str) -> Steps:
        yield from self.handshake("OAUTHBEARER")
        answer = yield from self.say(token_message(token))
        if answer:
            answer = yield from self.say(b"\x01")
        return answer

    def scram(self, mechanism: str, user: str, password: str, *, is_token: bool = False) -> Steps:
        yield from self.handshake(mechanism)
        first = scram_first(user, is_token=is_token)
        challenge = yield from self.say(b"n,," + first.encode())
        proof = scram_proof(mechanism, first, challenge or b"", password)
        return (yield from self.say(b"c=biws,r=x,p=AAAA" if proof is None else proof.message()))

    def any(self, user: str, password: str, token: str) -> Steps:
        """One of the mechanisms."""
        kind = self.source.randrange(4)
        if kind == 0:
            return self.plain(user, password)
        if kind == 1:
            return self.oauthbearer(token)
        return self.scram(self.source.choice(_SCRAM), user, password)


def _message_in(answer: bytes, version: int) -> bytes | None:
    """The mechanism's message in an answer to SaslAuthenticate; None if the answer is an error."""
    at = 4 + (1 if version == 2 else 0)
    if len(answer) < at + 2 or answer[at : at + 2] != b"\0\0":
        return None
    if version == 2:
        # An empty error message takes one byte, and a length below 127 as well.
        return answer[at + 4 : at + 4 + answer[at + 3] - 1]
    at += 4
    return answer[at + 4 : at + 4 + int.from_bytes(answer[at : at + 4], "big")]


class Exchanges:
    """Makes exchanges with a broker."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._seed = seed
        self._hellos = records.hellos()
        self._kinds: tuple[tuple[Callable[[random.Random], Exchange], int], ...] = (
            (self._mutated, 30),
            (self._forged, 18),
            (self._disordered, 12),
            (self._right, 4),
            (self._again, 3),
            (self._hello, 28),
            (self._shaken, 5),
        )

    def make(self, number: int) -> Exchange:
        source = random.Random(f"{self._seed}-{number}")
        (kind,) = source.choices([make for make, _ in self._kinds], [share for _, share in self._kinds])
        return kind(source)

    def _place(self, source: random.Random, tls_share: float = 0.08) -> tuple[tuple[str, int], Wire]:
        if source.random() < tls_share:
            return self._target.secured, TlsWire(self._target.trusting)
        return self._target.plain, PlainWire()

    # --- logins ------------------------------------------------------------------------------------------------------

    def _mutated(self, source: random.Random) -> Exchange:
        address, wire = self._place(source)
        login = _Login(wire, source)

        def bend(message: bytes) -> bytes:
            return hostile([message], source)[4:] if source.random() < 0.5 else message

        def bend_frame(data: bytes) -> bytes:
            return hostile([data[4:]], source) if source.random() < 0.3 else data

        login.bend, login.bend_frame = bend, bend_frame
        return Exchange("mutated", address, _then_probe(wire, login.any("anna", "wr0ng", forged_tokens()[0])), False)

    def _right(self, source: random.Random) -> Exchange:
        address, wire = self._place(source, 0.3)
        login = _Login(wire, source)
        login.piece_bytes = source.choice((0, 0, 1, 7))
        steps = login.any("anna", PASSWORDS["anna"], right_token())
        if source.random() < 0.2:
            token = self._target.token
            steps = login.scram(source.choice(_SCRAM), token.token_id, token.password, is_token=True)
        return Exchange("right", address, _then_probe(wire, steps), True)

    def _forged(self, source: random.Random) -> Exchange:
        address, wire = self._place(source)
        login = _Login(wire, source)
        make = source.choice((self._forged_proof, self._forged_plain, self._forged_jwt, self._forged_token))
        kind = make.__name__.removeprefix("_").replace("_", " ")
        return Exchange(kind, address, _then_probe(wire, make(login, source)), False)

    def _forged_plain(self, login: _Login, source: random.Random) -> Steps:
        right = PASSWORDS["anna"]
        user, password = source.choice(
            (
                ("anna", PASSWORDS["mallory"]),
                ("anna", right[:-1]),
                ("anna", right + "\n"),
                ("anna", right.upper()),
                ("anna", "\0" + right),
                ("anna", ""),
                ("Anna", right),
                ("anna ", right),
                ("", right),
                ("nobody", "nobody"),
                ("ben\0anna", right),
            )
        )
        return login.plain(user, password)

    def _forged_jwt(self, login: _Login, source: random.Random) -> Steps:
        if source.random() < 0.5:
            token = with_other_signature(right_token(), source.randrange(1000), source.randrange(8))
        else:
            token = source.choice(forged_tokens())
        return login.oauthbearer(token)

    def _forged_token(self, login: _Login, source: random.Random) -> Steps:
        target = self._target
        user, password, is_token = source.choice(
            (
                (target.token.token_id, target.other_token.password, True),
                (target.token.token_id, target.token.password, False),
                (target.ended_token.token_id, target.ended_token.password, True),
                ("anna", PASSWORDS["anna"], True),
                (target.token.token_id.lower().swapcase(), target.token.password[:-2], True),
            )
        )
        return login.scram(source.choice(_SCRAM), user, password, is_token=is_token)

    def _forged_proof(self, login: _Login, source: random.Random) -> Steps:
        """The attacker knows its own password and has seen the messages of others; or the proof is damaged."""
        mechanism = source.choice(_SCRAM)
        yield from login.handshake(mechanism)
        first = scram_first("anna")
        answer = yield from login.say(b"n,," + first.encode())
        kind = source.randrange(7)
        password = PASSWORDS["mallory"] if kind == 0 else PASSWORDS["anna"]
        proof = scram_proof(mechanism, first if kind != 1 else scram_first("mallory"), answer or b"", password)
        if proof is None:
            return None
        if kind == 2:
            changed = bytearray(proof.proof)
            changed[source.randrange(len(changed))] ^= 1 << source.randrange(8)
            proof = proof._replace(proof=bytes(changed))
        elif kind == 3:
            proof = proof._replace(proof=source.choice((b"", proof.proof[:-1], proof.proof + b"\0", proof.proof * 2)))
        elif kind == 4:
            proof = proof._replace(nonce=source.choice((NONCE, proof.nonce[:-1], proof.nonce + "x", "")))
        elif kind == 5:
            proof = proof._replace(channel=source.choice(("eSws", "cCxhLA==", "biw=", "", "biws=")))
        elif kind == 6:
            # A proof that was right in another exchange.
            recorded = _RECORDED.get(mechanism, proof.proof[::-1])
            _RECORDED[mechanism] = proof.proof
            proof = proof._replace(proof=recorded)
        return (yield from login.say(proof.message()))

    def _again(self, source: random.Random) -> Exchange:
        """Logs in rightly, and then as another user, whose password is right or wrong. Only a wrong user's session
        must end."""
        address, wire = self._place(source)
        login = _Login(wire, source)
        login.handshake_version = 1
        mechanism = source.choice(_SCRAM)

        def steps() -> Steps:
            yield from login.scram(mechanism, "mallory", PASSWORDS["mallory"])
            user = source.choice(("anna", "ben"))
            secret = source.choice((PASSWORDS[user], "wr0ng"))
            return (yield from login.scram(mechanism, user, secret))

        return Exchange("again", address, _then_probe(wire, steps()), False)

    # --- requests that are none of a login's -------------------------------------------------------------------------

    def _disordered(self, source: random.Random) -> Exchange:
        address, wire = self._place(source)
        kind = source.randrange(4)
        if kind == 0:
            size = source.choice((-1, -(2**31), 2**31 - 1, _LIMIT_BYTES + 1, _LIMIT_BYTES, 104_857_600, 0))
            data = size.to_bytes(4, "big", signed=True) + source.randbytes(source.choice((0, 1, 100, 70_000)))
            return Exchange("giant frame", address, _sent(wire, data), False)
        if kind == 1:
            return Exchange("noise", address, _sent(wire, source.randbytes(source.randrange(1, 3000))), False)
        requests = [_any_request(source) for _ in range(source.randrange(1, 6))]
        if kind == 2:
            return Exchange("one packet", address, _sent(wire, b"".join(requests) + PROBE), False)

        def steps() -> Steps:
            for request in requests:
                yield from wire.ask(request)
            return b""

        return Exchange("disordered", address, _then_probe(wire, steps()), False)

    # --- TLS ---------------------------------------------------------------------------------------------------------

    def _hello(self, source: random.Random) -> Exchange:
        address = source.choice((self._target.secured, self._target.mutual))
        data = records.mutated(source.choice(self._hellos), source)
        return Exchange("TLS hello", address, _sent(PlainWire(), data), False)

    def _shaken(self, source: random.Random) -> Exchange:
        """A handshake to its end: by a client that is trusted, is not trusted, or whose records are changed."""
        target = self._target
        kind = source.randrange(6)
        if kind == 0:
            wire = TlsWire(target.known)
            return Exchange("TLS with certificate", target.mutual, _then_probe(wire, PlainWire().open()), True)
        if kind == 1:
            wire = TlsWire(source.choice((target.strange, target.trusting)))
            return Exchange("TLS stranger", target.mutual, _then_probe(wire, PlainWire().open()), False)
        context = source.choice((target.strange, target.trusting, target.known))
        return Exchange("TLS mutated", target.mutual, records.mutated_handshake(context, source), False)


#: The last right proof by mechanism, which is right in no other exchange.
_RECORDED: dict[str, bytes] = {}


def _any_request(source: random.Random) -> bytes:
    message: tuple[Message, int] = source.choice(
        (
            (SaslHandshakeRequest(mechanism=source.choice(("PLAIN", "SCRAM-SHA-256", "NONE", "", "x" * 5000))), 1),
            (SaslHandshakeRequest(mechanism="PLAIN"), 0),
            (SaslAuthenticateRequest(auth_bytes=source.randbytes(source.randrange(60))), source.randrange(3)),
            (SaslAuthenticateRequest(auth_bytes=b"\0anna\0wr0ng"), source.randrange(3)),
            (ApiVersionsRequest(), source.randrange(3)),
            (MetadataRequest(topics=None), 1),
            (CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 2),
        )
    )
    return frame(*message)


def _then_probe(wire: Wire, steps: Steps) -> _Run:
    """An exchange, after which the client asks for something."""
    if (yield from wire.open()) is None:
        return False
    yield from steps
    return (yield from probe(wire))


def _sent(wire: Wire, data: bytes) -> _Run:
    """Sends bytes, and asks for something if the connection is still open."""
    if (yield from wire.open()) is None:
        return False
    yield from wire.ask(data)
    return (yield from probe(wire))
