"""Types what a document shows, and compares what is said: `python -m tests.docs.executed FILE`, in the directory where
it is to be typed.

Blocks of `console` are executed; a line that begins with "> " is a command for a shell, `cd` holds for what follows.
The word behind `console` says how:

    (nothing)     the command ends with 0; the lines below it are all that it prints on stdout
    begins        the same, but a line below is the beginning of one that is printed, in their order, and others may
                  come between
    runs          it is left running once it has printed each line below it, and gets Ctrl-C at the end
    types         the lines below are typed into it, then its input ends
    interrupts    it gets Ctrl-C once it has printed the lines below
    until         it is typed again and again until it prints the lines below, each the beginning of one
    kills         the person looks for the process of a command that is running (`ps | grep WORDS`) and ends it with
                  kill -9; the lines below say what that looks like

Prints what it does; ends with 1 and the difference where the document is not true. `--alone` first leaves this
machine's network for one of its own, with nothing but a loopback, so that the document's ports are free (Linux; needs
the right to make a user namespace)."""

from __future__ import annotations

import fcntl
import os
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_SECONDS = 60.0


class Untrue(Exception):
    """The document says something else than what happened."""


def blocks(text: str) -> list[tuple[str, list[tuple[str, list[str]]]]]:
    """How, and commands with the lines below each."""
    found = []
    for how, body in re.findall(r"^```console *(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        commands: list[tuple[str, list[str]]] = []
        for line in body.splitlines():
            if line.startswith("> "):
                commands.append((line[2:], []))
            elif commands:
                commands[-1][1].append(line)
        found.append((how, commands))
    return found


class Session:
    """A person with several terminals."""

    def __init__(self) -> None:
        self._directory = Path.cwd()
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def execute(self, text: str) -> None:
        try:
            for how, commands in blocks(text):
                for command, lines in commands:
                    print(f"> {command}", flush=True)
                    self._do(how, command, lines)
        finally:
            self._end()

    def _do(self, how: str, command: str, lines: list[str]) -> None:
        if command.startswith("cd "):
            self._directory /= command[3:].strip()
            return
        if how == "kills":
            self._kill(command)
            return
        if how == "until":
            self._repeat(command, lines)
            return
        process = subprocess.Popen(
            command,
            shell=True,
            cwd=self._directory,
            stdin=subprocess.PIPE if how == "types" else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if how in ("runs", "types") else None,
            start_new_session=True,
        )
        if how in ("runs", "interrupts"):
            self._running.append((command, process))
            _wait_for(command, process, lines)
            if how == "interrupts":
                self._running.pop()
                _interrupt(command, process)
            return
        typed = "".join(f"{line}\n" for line in lines).encode() if how == "types" else None
        said, _ = process.communicate(typed, _SECONDS)
        if process.returncode != 0:
            raise Untrue(f"{command} ended with {process.returncode}: {said.decode(errors='replace')}")
        if how == "begins":
            if not _begun(said, lines):
                raise Untrue(
                    f"{command} printed\n{said.decode()}\nwhere the document has lines that begin with\n"
                    + "\n".join(lines)
                )
        elif how == "" and said.decode().splitlines() != lines:
            raise Untrue(f"{command} printed\n{said.decode()}\nwhere the document has\n" + "\n".join(lines))

    def _kill(self, command: str) -> None:
        """Ends what runs and has the words in it that are looked for."""
        looked_for = command.partition("grep ")[2]
        if not looked_for:
            return  # the number that was found is typed
        found = [running for running in self._running if looked_for in running[0]]
        if len(found) != 1:
            raise Untrue(f"{len(found)} running commands have {looked_for} in them")
        self._running.remove(found[0])
        os.killpg(found[0][1].pid, signal.SIGKILL)
        found[0][1].communicate()

    def _repeat(self, command: str, lines: list[str]) -> None:
        ends = time.monotonic() + _SECONDS
        while True:
            done = subprocess.run(
                command, shell=True, cwd=self._directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
            )
            if done.returncode == 0 and _begun(done.stdout, lines):
                return
            if time.monotonic() > ends:
                said = done.stdout.decode(errors="replace")
                raise Untrue(f"{command} ended with {done.returncode} and printed, after {_SECONDS:g} s still,\n{said}")

    def _end(self) -> None:
        for command, process in reversed(self._running):
            _interrupt(command, process)


def _wait_for(command: str, process: subprocess.Popen[bytes], lines: list[str]) -> None:
    """Reads until every line has been begun, in their order; what comes between is the command's own business."""
    assert process.stdout is not None
    said, ends = b"", time.monotonic() + _SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if _begun(said, lines):
                return
            if not selector.select(max(0, ends - time.monotonic())):
                raise Untrue(f"{command} said within {_SECONDS:g} s only\n{said.decode(errors='replace')}")
            piece = os.read(process.stdout.fileno(), 65536)
            if not piece:
                raise Untrue(
                    f"{command} ended with {process.wait(_SECONDS)} and had said only\n{said.decode(errors='replace')}"
                )
            said += piece


def _begun(said: bytes, lines: list[str]) -> bool:
    rest = iter(said.decode(errors="replace").splitlines())
    return all(any(line.startswith(wanted) for line in rest) for wanted in lines)


def _interrupt(command: str, process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C for the command and what it has started."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Untrue(f"{command} did not end on Ctrl-C") from None


def _alone() -> None:
    """A network of its own, with a loopback that is up."""
    flag_up, set_flags = 0x41, 0x8914  # IFF_UP and IFF_RUNNING, SIOCSIFFLAGS
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, set_flags, struct.pack("16sH14x", b"lo", flag_up))


def main(arguments: Sequence[str]) -> int:
    file = arguments[-1]
    if "--alone" in arguments:
        os.execvp(
            "unshare",
            ["unshare", "--map-root-user", "--net", sys.executable, "-m", "tests.docs.executed", "--loopback", file],
        )
    if "--loopback" in arguments:
        _alone()
    # Whoever started this may have it ignored, and the commands would inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        Session().execute(Path(file).read_text())
    except Untrue as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
