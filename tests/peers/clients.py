"""Clients of other languages and of other times, each in an environment of its own under .peers/ in this clone: made
once, and again when what pins it changes.

    python -m tests.peers.clients          makes what is missing; says what could not be made, and then ends with 1

kafka-python 1.4 and 2.0 get a virtual environment each (what they need stands in python/kafka-python-*.txt), franz-go
is built from go/ (go.sum), kafkajs is installed for node/ (package-lock.json). `tests.peers.python.conversation` is
what all of them are asked in. MIT's Kerberos server is unpacked from the distribution's packages, which needs no root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

_HERE = Path(__file__).parent
PROJECT = _HERE.parents[1]
_MADE = PROJECT / ".peers"
_SECONDS = 600


class MissingError(Exception):
    """The text says what is not there."""


def python_client(module: str, environment: str | None = None) -> list[str]:
    """The command of a client in Python, to be run in PROJECT; `environment` is the name of its requirements file,
    without one it runs in ours."""
    python = sys.executable if environment is None else str(_environment(environment) / "bin" / "python")
    return [python, "-m", f"tests.peers.python.{module}"]


def go_client() -> list[str]:
    """The command of the client in Go."""
    sources = [_HERE / "go" / name for name in ("main.go", "transactions.go", "secured.go", "go.mod", "go.sum")]

    def make(folder: Path) -> None:
        # All that it needs is compiled first, which takes half the time so.
        _run(
            "go",
            "build",
            "-gcflags=all=-N -l",
            "-ldflags=-s -w",
            "-o",
            str(folder / "client"),
            ".",
            cwd=_HERE / "go",
            environment={"CGO_ENABLED": "0"},
        )

    return [str(_made("go", sources, make, "go") / "client")]


def node_client(program: str = "client.js") -> list[str]:
    """The command of a client in JavaScript."""
    locked = [_HERE / "node" / name for name in ("package.json", "package-lock.json")]

    def make(folder: Path) -> None:
        for file in (*locked, _HERE / "node" / ".npmrc"):
            shutil.copy(file, folder)
        _run("npm", "ci", "--no-audit", "--no-fund", cwd=folder)

    folder = _made("node", locked, make, "node", "npm")
    shutil.copy(_HERE / "node" / program, folder)  # modules are looked for beside the program
    return ["node", str(folder / program)]


#: The packages of MIT's Kerberos with the programs of a server, and what these load.
_KERBEROS = (
    *("krb5-kdc", "krb5-admin-server", "krb5-user", "libkdb5-10", "libkadm5srv-mit12", "libkadm5clnt-mit12"),
    *("libgssrpc4", "libverto1", "libverto-libev1", "libev4", "libgssapi-krb5-2", "libkrb5-3", "libkrb5support0"),
    *("libk5crypto3", "libcom-err2", "libss2"),
)


def kerberos() -> Path:
    """The folder below which the distribution's packages of a Kerberos server are unpacked."""

    def make(folder: Path) -> None:
        _run("apt-get", "download", "-q", *_KERBEROS, cwd=folder)
        for package in folder.glob("*.deb"):
            _run("dpkg", "-x", str(package), str(folder), cwd=folder)
            package.unlink()

    return _made("kerberos", [Path(__file__)], make, "apt-get", "dpkg")


def _environment(name: str) -> Path:
    requirements = _HERE / "python" / f"{name}.txt"

    def make(folder: Path) -> None:
        _run(sys.executable, "-m", "venv", str(folder), cwd=PROJECT)
        _run(
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-r",
            str(requirements),
            cwd=PROJECT,
        )

    return _made(name, [requirements], make)


def _made(name: str, sources: list[Path], make: Callable[[Path], None], *programs: str) -> Path:
    """The folder that `make` has filled; MissingError where that cannot be."""
    folder = _MADE / name
    stamp = folder / ".made-of"
    made_of = f"{sys.version} {folder} {zlib.crc32(b''.join(source.read_bytes() for source in sources))}"
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise MissingError(f"{', '.join(missing)} not installed")
    if not stamp.exists() or stamp.read_text() != made_of:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        stamp.write_text(made_of)
    return folder


def _run(*command: str, cwd: Path, environment: Mapping[str, str] | None = None) -> None:
    """`environment` is what is added to ours."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    if done.returncode:
        raise MissingError(f"{' '.join(command)} failed: {(done.stdout + done.stderr)[-2000:]}")


def main() -> int:
    missing = 0
    for name, make in {
        "kafka-python 1.4": lambda: python_client("kafka_python_client", "kafka-python-1.4"),
        "kafka-python 2.0": lambda: python_client("kafka_python_client", "kafka-python-2.0"),
        "franz-go": go_client,
        "kafkajs": node_client,
        "MIT Kerberos": kerberos,
    }.items():
        try:
            make()
        except (MissingError, OSError, subprocess.SubprocessError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            missing += 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
