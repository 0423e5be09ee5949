"""A Kerberos server (MIT's krb5kdc) on loopback with a realm of its own, and the files of its servers and users."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from types import TracebackType

import pytest

from tests.peers.apache_kafka import free_port
from tests.peers.clients import MissingError, kerberos

REALM = "SHOP.EXAMPLE"
#: The service that brokers are in tests; they and their clients are on localhost.
SERVICE, HOST = "kafka", "localhost"
_SECONDS = 60
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_READY = "starting"


@cache
def _programs() -> tuple[dict[str, str], dict[str, str], Path | None]:
    """The paths of the programs, what they need in the environment, and where their plugins are; MissingError if they
    are not here and cannot be fetched."""
    found = {name: shutil.which(name) for name in _PROGRAMS}
    if None not in found.values():
        return {name: str(path) for name, path in found.items()}, {}, None
    root = kerberos()
    paths = {path.name: str(path) for folder in ("sbin", "bin") for path in (root / "usr" / folder).iterdir()}
    libraries = sorted({str(path.parent) for path in root.rglob("lib*.so.*")})
    plugins = next(root.rglob("kdb/db2.so")).parent
    return {name: paths[name] for name in _PROGRAMS}, {"LD_LIBRARY_PATH": ":".join(libraries)}, plugins


def need_kdc() -> None:
    """Skips the test, or fails it in CI, where no Kerberos server can be had."""
    try:
        _programs()
    except (MissingError, OSError, subprocess.SubprocessError, StopIteration, KeyError) as error:
        sentence = f"MIT's Kerberos server is not here and cannot be fetched: {str(error)[-300:]}"
        if os.environ.get("JESENSKA_PEERS") == "required":
            pytest.fail(sentence)
        pytest.skip(sentence)


class Kdc:
    """Runs while a `with` block runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        #: The file that KRB5_CONFIG names.
        self.configuration = directory / "krb5.conf"
        self._programs, libraries, plugins = _programs()
        self.environment = {
            "KRB5_CONFIG": str(self.configuration),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            # No test reads or writes the tickets of the user that runs it.
            "KRB5CCNAME": f"FILE:{directory / 'default.cache'}",
        }
        self._environment = {**os.environ, **libraries, **self.environment}
        self._modules = "" if plugins is None else f"[dbmodules]\n  db_module_dir = {plugins}\n"
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Kdc:
        where = f"127.0.0.1:{self.port}"
        self.configuration.write_text(
            f"[libdefaults]\n  default_realm = {REALM}\n  dns_lookup_kdc = false\n  dns_lookup_realm = false\n"
            "  rdns = false\n  dns_canonicalize_hostname = false\n  udp_preference_limit = 1\n"
            f"[realms]\n  {REALM} = {{\n    kdc = {where}\n  }}\n{self._modules}"
        )
        (self.directory / "kdc.conf").write_text(
            f'[kdcdefaults]\n  kdc_listen = ""\n  kdc_tcp_listen = {where}\n[realms]\n  {REALM} = {{\n'
            f"    database_name = {self.directory}/principals\n    key_stash_file = {self.directory}/stash\n"
            f'    kdc_listen = ""\n    kdc_tcp_listen = {where}\n    max_life = 1d\n  }}\n'
            f"[logging]\n  kdc = FILE:{self.directory}/kdc.log\n"
        )
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of the tests")
        self._process = subprocess.Popen(
            [self._programs["krb5kdc"], "-n", "-r", REALM],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert _READY in said, said
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.communicate(timeout=_SECONDS)

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [self._programs[program], *words],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def key_tab(self, *principals: str) -> Path:
        """A key tab with new keys of these principals, which are made if they are new; earlier key tabs of them no
        longer fit."""
        path = self.directory / f"{len(list(self.directory.glob('*.keytab')))}.keytab"
        for principal in principals:
            # An error means that the principal is there.
            self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
            self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        return path

    def cache(self, principal: str, key_tab: Path, lifetime: str = "1h") -> Path:
        """A new cache of tickets of a principal, such as a user gets from kinit."""
        path = self.directory / f"{len(list(self.directory.glob('*.tickets')))}.tickets"
        self._run("kinit", "-k", "-t", str(key_tab), "-c", str(path), "-l", lifetime, principal)
        return path
