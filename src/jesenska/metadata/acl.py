"""Access rules (ACLs) of the nodes of the metadata tree, in ZooKeeper's schemes. A rule matches the identities of a
connection:

    scheme   id in a rule                         matches
    world    anyone                               everyone
    digest   user:base64(SHA-1(user:password))    a connection that has sent `user:password`
    ip       address, or address/bits             a connection from this address or network
    sasl     user                                 a connection that has logged in as this user, or as the user `super`
    x509     name of a subject                    a TLS connection with a certificate of this subject
    auth     (anything)                           replaced, when the rule is set, by the digest, sasl and x509
                                                  identities of its writer

A connection with the identity SUPER, which only the server gives, may do everything.

A rule grants permission bits (READ, WRITE, CREATE, DELETE, ADMIN). They do not apply to the node's children. CREATE
and DELETE are checked at the parent of the node."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from jesenska.metadata.tree_operations import ADMIN, OPEN_ACL, Acl, InvalidAclError


class Identity(NamedTuple):
    """An identity of a client's connection. Each connection has an identity of the scheme `ip` (its address), and an
    identity of the scheme `digest` for each user and password that it has sent."""

    scheme: str
    id: str


#: The identity of a connection that may do everything.
SUPER = Identity("super", "")
#: The schemes of identities that a client has proved. Rules of the scheme `auth` are replaced by rules for them.
_PROVED = ("digest", "sasl", "x509")
#: A name of a user, as in Kerberos: name, name/host@REALM.
_USER = re.compile(r"[^@]*|[^/@]*(/[^/@]*)?@[^/@]*")


def digest_identity(user_and_password: bytes) -> Identity:
    """Returns the digest identity for `user:password`. A text without a colon is a user without a password."""
    hashed = base64.b64encode(hashlib.sha1(user_and_password, usedforsecurity=False).digest()).decode()
    user = user_and_password.partition(b":")[0].decode(errors="replace")
    return Identity("digest", f"{user}:{hashed}")


def permits(acl: tuple[Acl, ...], permissions: int, identities: Collection[Identity]) -> bool:
    """Returns True if a rule of the ACL grants at least one of the permissions to at least one of the identities."""
    if acl is OPEN_ACL or SUPER in identities:
        return True
    for rule in acl:
        if not rule.permissions & permissions:
            continue
        if rule.scheme == "world" and rule.id == "anyone":
            return True
        if any(rule.scheme == identity.scheme and _matches(rule, identity) for identity in identities):
            return True
    return False


#: A login with this name matches every rule of the scheme `sasl`, as in ZooKeeper.
_SUPER_LOGIN = Identity("sasl", "super")


def _matches(rule: Acl, identity: Identity) -> bool:
    if rule.scheme != "ip":
        return rule.id == identity.id or identity == _SUPER_LOGIN
    try:
        return ip_address(identity.id) in ip_network(rule.id, strict=False)
    except ValueError:
        return False


def completed(path: str, acl: tuple[Acl, ...], identities: Collection[Identity]) -> tuple[Acl, ...]:
    """Returns an ACL in the form in which it is stored: without duplicate rules, and with each `auth` rule replaced by
    rules for the identities that its writer has proved. Raises InvalidAclError if a rule is not valid."""
    if acl is OPEN_ACL or acl == OPEN_ACL:
        return OPEN_ACL
    found: dict[Acl, None] = {}
    for rule in acl:
        match rule.scheme:
            case "auth":
                own = [Acl(rule.permissions, *one) for one in sorted(identities) if one.scheme in _PROVED]
                if not own:
                    raise InvalidAclError(path, "scheme auth without an identity")
                found.update(dict.fromkeys(own))
                continue
            case "world":
                is_valid = rule.id == "anyone"
            case "digest":
                is_valid = rule.id.count(":") == 1
            case "ip":
                is_valid = _is_network(rule.id)
            case "sasl":
                is_valid = _USER.fullmatch(rule.id) is not None
            case "x509":
                is_valid = "=" in rule.id
            case _:
                is_valid = False
        if not is_valid:
            raise InvalidAclError(path, f"{rule.scheme}:{rule.id} is not a valid identity")
        found[rule] = None
    if not found:
        raise InvalidAclError(path, "no rules")
    return tuple(found)


def shown(acl: tuple[Acl, ...], identities: Collection[Identity]) -> tuple[Acl, ...]:
    """Returns the rules of a node's ACL as a client with these identities may see them. Without the permission ADMIN,
    hashes of passwords are replaced by x."""
    if permits(acl, ADMIN, identities):
        return acl
    return tuple(
        Acl(rule.permissions, rule.scheme, rule.id.partition(":")[0] + ":x") if rule.scheme == "digest" else rule
        for rule in acl
    )


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True
