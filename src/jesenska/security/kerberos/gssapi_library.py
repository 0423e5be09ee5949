"""A binding of the system's Kerberos library, MIT's libgssapi_krb5 (RFC 2743, RFC 2744), by ctypes.

    Library.load()              the library, loaded at first use
    import_service, import_principal -> Name
    accepting(key tab)          -> Credential   of a server; the key tab is read again for each client
    initiating(key tab | cache) -> Credential   of a client; may ask the KDC, which blocks
    Acceptor, Initiator         a security context: step(token), then wrap and unwrap

An object of the library is released when its Python object is released; `Library.live` has the objects that are not
released yet. Only the mechanism Kerberos is used: SPNEGO and other mechanisms are refused. The library reads the
configuration file that the environment variable KRB5_CONFIG names, or /etc/krb5.conf."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from jesenska.base.errors import InvalidConfigError

_NAMES: Final = ("libgssapi_krb5.so.2", "libgssapi_krb5.so")
_FOUND_BY: Final = "gssapi_krb5"
_CONFIGURATION: Final = "KRB5_CONFIG"

_CONTINUE_NEEDED: Final = 1
#: The bits of a call's major status that are set if the call has failed (calling errors and routine errors).
_ERRORS: Final = 0xFFFF_0000
_INDEFINITE: Final = 0xFFFF_FFFF
_ACCEPT, _INITIATE = 2, 1
_GSS_CODE, _MECHANISM_CODE = 1, 2
_MUTUAL, _INTEGRITY = 2, 32
#: The library's text for a status if the mechanism has no error message.
_NO_TEXT: Final = "Success"
#: The maximum number of texts that are read for one status.
_TEXTS_MAX: Final = 8


class GssapiError(Exception):
    """Raised when a call of the library has failed. The message is the library's text, for the log."""


class _Buffer(ctypes.Structure):
    _fields_ = (("length", ctypes.c_size_t), ("value", ctypes.c_void_p))
    length: int
    value: int | None
    #: The bytes to which a buffer for the library points. They must exist as long as the buffer.
    content: bytes


class _Mechanisms(ctypes.Structure):
    _fields_ = (("count", ctypes.c_size_t), ("elements", ctypes.c_void_p))


class _Element(ctypes.Structure):
    _fields_ = (("key", ctypes.c_char_p), ("value", ctypes.c_char_p))


class _Store(ctypes.Structure):
    _fields_ = (("count", ctypes.c_uint32), ("elements", ctypes.POINTER(_Element)))


_STATUS = ctypes.POINTER(ctypes.c_uint32)
_HANDLE = ctypes.POINTER(ctypes.c_void_p)
_BUFFER = ctypes.POINTER(_Buffer)
_MECHANISMS = ctypes.POINTER(_Mechanisms)
_INT = ctypes.POINTER(ctypes.c_int)
#: The types of each function's parameters, without the first parameter, which is always the minor status.
_FUNCTIONS: Final[Mapping[str, tuple[Any, ...]]] = {
    "gss_import_name": (_BUFFER, ctypes.c_void_p, _HANDLE),
    "gss_canonicalize_name": (ctypes.c_void_p, ctypes.c_void_p, _HANDLE),
    "gss_display_name": (ctypes.c_void_p, _BUFFER, _HANDLE),
    "gss_release_name": (_HANDLE,),
    "gss_acquire_cred_from": (
        *(ctypes.c_void_p, ctypes.c_uint32, _MECHANISMS, ctypes.c_int, ctypes.POINTER(_Store)),
        *(_HANDLE, ctypes.c_void_p, _STATUS),
    ),
    "gss_release_cred": (_HANDLE,),
    "gss_accept_sec_context": (
        *(_HANDLE, ctypes.c_void_p, _BUFFER, ctypes.c_void_p, _HANDLE, ctypes.c_void_p, _BUFFER),
        *(_STATUS, ctypes.c_void_p, ctypes.c_void_p),
    ),
    "gss_init_sec_context": (
        *(ctypes.c_void_p, _HANDLE, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32),
        *(ctypes.c_void_p, _BUFFER, ctypes.c_void_p, _BUFFER, _STATUS, ctypes.c_void_p),
    ),
    "gss_delete_sec_context": (_HANDLE, ctypes.c_void_p),
    "gss_wrap": (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, _BUFFER, _INT, _BUFFER),
    "gss_unwrap": (ctypes.c_void_p, _BUFFER, _BUFFER, _INT, _STATUS),
    "gss_release_buffer": (_BUFFER,),
}


def use_configuration(path: str) -> None:
    """Sets the configuration file of Kerberos. Does nothing if the environment variable KRB5_CONFIG is set."""
    os.environ.setdefault(_CONFIGURATION, path)


def _opened() -> ctypes.CDLL:
    for name in _NAMES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    # This search starts other programs, so it is tried last.
    found = ctypes.util.find_library(_FOUND_BY)
    if found is None:
        raise OSError("not found")
    return ctypes.CDLL(found)


class Library:
    """The functions of the library that are used here."""

    def __init__(self) -> None:
        """Loads the library. Raises InvalidConfigError if the library is not installed, or is not MIT's library."""
        try:
            library = _opened()
            self._functions = {name: getattr(library, name) for name in (*_FUNCTIONS, "gss_display_status")}
            oids = ("GSS_C_NT_HOSTBASED_SERVICE", "GSS_KRB5_NT_PRINCIPAL_NAME", "gss_mech_krb5")
            self.service_type, self.principal_type, self.kerberos = (
                ctypes.c_void_p.in_dll(library, name).value for name in oids
            )
        except (OSError, AttributeError, ValueError) as error:
            raise InvalidConfigError(
                "GSSAPI needs MIT's Kerberos library, which is not here: install the package libgssapi-krb5-2 "
                "(Debian, Ubuntu) or krb5-libs (Fedora, Red Hat)."
            ) from error
        for name, parameters in _FUNCTIONS.items():
            function = self._functions[name]
            function.argtypes = (_STATUS, *parameters)
            function.restype = ctypes.c_uint32
        #: The objects of the library that are not released yet.
        self.live: set[int] = set()

    @staticmethod
    @cache
    def load() -> Library:
        """Returns the library of this process. Raises InvalidConfigError if the library cannot be loaded."""
        return Library()

    def call(self, name: str, *parameters: Any) -> int:
        """Calls a function of the library, and returns its major status. Raises GssapiError if the status is an
        error."""
        minor = ctypes.c_uint32()
        major: int = self._functions[name](ctypes.byref(minor), *parameters)
        if major & _ERRORS:
            raise GssapiError(self._text(major, minor.value))
        return major

    def _text(self, major: int, minor: int) -> str:
        """Returns the library's texts for a status: the texts of the mechanism, or the general texts if the mechanism
        has no text."""
        own = [text for text in self._texts(minor, _MECHANISM_CODE) if text != _NO_TEXT] if minor else []
        return "; ".join(own or self._texts(major, _GSS_CODE)) or f"status {major:#x}"

    def _texts(self, status: int, kind: int) -> list[str]:
        display = self._functions["gss_display_status"]
        display.restype = ctypes.c_uint32
        more, minor = ctypes.c_uint32(), ctypes.c_uint32()
        found: list[str] = []
        for _ in range(_TEXTS_MAX):
            text = _Buffer()
            major = display(
                ctypes.byref(minor),
                ctypes.c_uint32(status),
                ctypes.c_int(kind),
                ctypes.c_void_p(self.kerberos),
                ctypes.byref(more),
                ctypes.byref(text),
            )
            if major & _ERRORS:
                break
            found.append(self.taken(text).decode(errors="replace"))
            if not more.value:
                break
        return [text for text in found if text]

    def taken(self, buffer: _Buffer) -> bytes:
        """Returns the bytes of a buffer that the library has filled, and releases it."""
        found = ctypes.string_at(buffer.value, buffer.length) if buffer.value else b""
        self._functions["gss_release_buffer"](ctypes.byref(ctypes.c_uint32()), ctypes.byref(buffer))
        return found


def _given(content: bytes) -> _Buffer:
    """Returns a buffer from which the library can read `content`. The buffer keeps the bytes alive."""
    buffer = _Buffer(len(content), ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p))
    buffer.content = content
    return buffer


class _Held:
    """An object of the library. It is released when this Python object is released."""

    _release = ""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.handle = ctypes.c_void_p()

    def _filled(self) -> None:
        """Records that the library has created the object, so that it must be released."""
        if self.handle.value:
            self.library.live.add(id(self))

    def release(self) -> None:
        """Releases the object of the library. Does nothing if there is no object."""
        if self.handle.value:
            more = (None,) if self._release == "gss_delete_sec_context" else ()
            self.library.call(self._release, ctypes.byref(self.handle), *more)
            self.handle = ctypes.c_void_p()
        self.library.live.discard(id(self))

    def __del__(self) -> None:
        self.release()


class Name(_Held):
    """The name of a service or of a principal."""

    _release = "gss_release_name"

    def __str__(self) -> str:
        """Returns the principal with its realm. Raises GssapiError if the principal is not UTF-8."""
        text = _Buffer()
        self.library.call("gss_display_name", self.handle, ctypes.byref(text), None)
        try:
            return self.library.taken(text).decode()
        except UnicodeDecodeError as error:
            raise GssapiError("a principal that is not UTF-8") from error


def _imported(library: Library, text: str, kind: int | None) -> Name:
    name = Name(library)
    buffer = _given(text.encode())
    library.call("gss_import_name", ctypes.byref(buffer), kind, ctypes.byref(name.handle))
    name._filled()
    return name


def import_service(library: Library, service: str, host: str) -> Name:
    """Returns the name of a service on a host. The principal of this name is SERVICE/HOST."""
    return _imported(library, f"{service}@{host}", library.service_type)


def import_principal(library: Library, principal: str) -> Name:
    """Returns the name of a principal. A principal without a realm is in the default realm."""
    return _imported(library, principal, library.principal_type)


def default_realm(library: Library) -> str:
    """Returns the default realm, which applies to names without a realm. Returns an empty text if the configuration
    names no default realm."""
    given, found = import_principal(library, "x"), Name(library)
    try:
        library.call("gss_canonicalize_name", given.handle, library.kerberos, ctypes.byref(found.handle))
    except GssapiError:
        return ""
    found._filled()
    return str(found).partition("@")[2]


class Credential(_Held):
    """The credential of a server or a client."""

    _release = "gss_release_cred"

    def __init__(self, library: Library, name: Name | None, usage: int, store: Mapping[str, str]) -> None:
        super().__init__(library)
        mechanisms, seconds = _Mechanisms(1, library.kerberos), ctypes.c_uint32()
        elements = (_Element * len(store))(*(_Element(key.encode(), text.encode()) for key, text in store.items()))
        library.call(
            "gss_acquire_cred_from",
            name.handle if name is not None else None,
            _INDEFINITE,
            ctypes.byref(mechanisms),
            usage,
            ctypes.byref(_Store(len(store), elements)),
            ctypes.byref(self.handle),
            None,
            ctypes.byref(seconds),
        )
        self._filled()
        #: True if the tickets of a client's credential have expired.
        self.has_expired = seconds.value == 0


def accepting(library: Library, key_tab: Path, principal: str | None) -> Credential:
    """Returns the credential of a server: the keys of a principal in a key tab. If `principal` is None, all keys of
    the key tab are used. Raises GssapiError if there is no such key."""
    name = None if principal is None else import_principal(library, principal)
    return Credential(library, name, _ACCEPT, {"keytab": f"FILE:{key_tab}"})


def initiating(library: Library, principal: str | None, store: Mapping[str, str]) -> Credential:
    """Returns the credential of a client from a store with `client_keytab` and `ccache`, or with `ccache` alone. An
    empty store means the default cache of tickets. May block. Raises GssapiError if there are no tickets."""
    name = None if principal is None else import_principal(library, principal)
    return Credential(library, name, _INITIATE, store)


class _Context(_Held):
    """A security context between a client and a server."""

    _release = "gss_delete_sec_context"

    def __init__(self, library: Library, credential: Credential) -> None:
        super().__init__(library)
        self._credential = credential
        self.is_established = False

    def wrap(self, message: bytes) -> bytes:
        """Returns a message with a check of its integrity, not encrypted."""
        found, encrypted, given = _Buffer(), ctypes.c_int(), _given(message)
        self.library.call(
            "gss_wrap", self.handle, 0, 0, ctypes.byref(given), ctypes.byref(encrypted), ctypes.byref(found)
        )
        return self.library.taken(found)

    def unwrap(self, token: bytes) -> bytes:
        """Returns the message in a token that the peer has wrapped. Raises GssapiError if the token was changed."""
        found, encrypted, quality, given = _Buffer(), ctypes.c_int(), ctypes.c_uint32(), _given(token)
        self.library.call(
            "gss_unwrap",
            *(self.handle, ctypes.byref(given), ctypes.byref(found), ctypes.byref(encrypted), ctypes.byref(quality)),
        )
        return self.library.taken(found)


class Acceptor(_Context):
    """A server's side of a security context."""

    def __init__(self, library: Library, credential: Credential) -> None:
        super().__init__(library, credential)
        #: The client's principal when the context is established; None before.
        self.peer: str | None = None

    def step(self, token: bytes) -> bytes:
        """Returns the answer to a client's token; the answer may be empty. Raises GssapiError if the token is
        refused."""
        name, answer, given = Name(self.library), _Buffer(), _given(token)
        try:
            major = self.library.call(
                "gss_accept_sec_context",
                *(ctypes.byref(self.handle), self._credential.handle, ctypes.byref(given), None),
                *(ctypes.byref(name.handle), None, ctypes.byref(answer), None, None, None),
            )
        finally:
            # The library's answer to a refused token would tell the client the reason, so it is not sent.
            message = self.library.taken(answer)
            self._filled()
            name._filled()
        if not major & _CONTINUE_NEEDED:
            self.is_established = True
            self.peer = str(name)
        return message


class Initiator(_Context):
    """A client's side of a security context with a server. The server must prove its identity."""

    def __init__(self, library: Library, credential: Credential, target: Name) -> None:
        super().__init__(library, credential)
        self._target = target

    def step(self, token: bytes | None) -> bytes:
        """Returns the client's next token. `token` is the server's last token; it is None at the first call. May ask
        the KDC, which blocks. Raises GssapiError if there is no ticket, or if the server is not the expected
        server."""
        answer, flags, given = _Buffer(), ctypes.c_uint32(), _given(token or b"")
        try:
            major = self.library.call(
                "gss_init_sec_context",
                *(self._credential.handle, ctypes.byref(self.handle), self._target.handle, self.library.kerberos),
                *(_MUTUAL | _INTEGRITY, 0, None, None if token is None else ctypes.byref(given), None),
                *(ctypes.byref(answer), ctypes.byref(flags), None),
            )
        finally:
            message = self.library.taken(answer)
            self._filled()
        if not major & _CONTINUE_NEEDED:
            if not flags.value & _MUTUAL:
                raise GssapiError("a server that has not proved who it is")
            self.is_established = True
        return message
