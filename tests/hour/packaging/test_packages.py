"""What is built of this project, and what it is worth where there is no compiler: the sdist of this tree, and a wheel
of it for the Python that runs the tests.

Everything is built in copies below pytest's directory. The wheel is installed in an empty environment in which no
compiler can be found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from jesenska import __version__
from jesenska.testing import BrokerProcess

ROOT = Path(__file__).parents[3]
#: What lies about in a clone and is no part of it; what was compiled in place is left where it is: it must not get
#: into a package.
_NOT_COPIED = shutil.ignore_patterns(
    ".*", "build", "dist", "data", "demo-data", "spark-warehouse", "metastore_db", "*.egg-info", "__pycache__"
)
_COMPILERS = ("cc", "gcc", "clang", "c99", "tcc")
_LIBRARY = "jesenska/_compiled__mypyc"

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not any(map(shutil.which, _COMPILERS)), reason="no C compiler is there"),
]


def _run(
    command: list[str], directory: Path, environment: Mapping[str, str] | None = None, typed: str | None = None
) -> str:
    """What the command prints on stdout; the test fails with all of its output unless it ends with 0."""
    done = subprocess.run(
        command, cwd=directory, env=environment, input=typed, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def _sdist_of(source: Path, directory: Path) -> Path:
    """The sdist of a project, built by its own build backend."""
    directory.mkdir()
    _run(
        [
            sys.executable,
            "-c",
            "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])",
            str(directory),
        ],
        source,
    )
    (sdist,) = directory.iterdir()
    return sdist


def _wheel_of(source: Path, directory: Path, environment: Mapping[str, str]) -> Path:
    """The wheel of a project for this Python."""
    # The compiler takes every processor; tests that run meanwhile go first.
    build = ["nice", sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    _run([*build, "--wheel-dir", str(directory), str(source)], directory, environment)
    (built,) = directory.glob("*.whl")
    return built


def _files_of(sdist: Path) -> set[str]:
    """Paths of the files in an sdist, below its one directory."""
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


def _source_files() -> set[str]:
    """Paths below src that somebody wrote."""
    suffixes = {".py", ".pyx", ".pxi", ".h", ".typed"}
    return {str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*") if path.suffix in suffixes}


def _modules_to_compile() -> set[str]:
    """Paths of the modules that mypyc compiles, without their suffix."""
    lines = (ROOT / "compiled-modules").read_text().splitlines()
    return {f"jesenska/{line.removesuffix('.py')}" for line in lines if line and not line.startswith("#")}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sdist")
    shutil.copytree(ROOT, directory / "source", ignore=_NOT_COPIED)
    return _sdist_of(directory / "source", directory / "dist")


@pytest.fixture(scope="module")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(directory)
    (source,) = directory.iterdir()
    return source


@pytest.fixture(scope="module")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from what the sdist holds, with the build tools of the environment that runs the tests, where an earlier
    build has left something."""
    directory = tmp_path_factory.mktemp("wheel")
    platform = f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for name in (f"lib.{platform}", f"wheel/lib.{platform}"):
        left_over = unpacked / "build" / name / "jesenska" / "left_over.py"
        left_over.parent.mkdir(parents=True)
        left_over.touch()
    # Not optimised it is built in half the time, and everything else about it is the same; script/setup's modules are
    # optimised, and run in all other tests.
    return _wheel_of(unpacked, directory, {**os.environ, "CFLAGS": "-O0"})


@pytest.fixture(scope="module")
def bin_directory(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that had nothing in it but pip when the wheel was installed, without a compiler
    on the path."""
    environment = tmp_path_factory.mktemp("installed") / "environment"
    _run([sys.executable, "-m", "venv", str(environment)], environment.parent)
    programs = environment / "bin"
    _run(
        [str(programs / "python"), "-m", "pip", "install", "--only-binary", ":all:", str(wheel)],
        environment.parent,
        _alone(programs),
    )
    return programs


def _alone(programs: Path) -> dict[str, str]:
    """Variables for a process that finds these programs and no others, and jesenska where it is installed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JESENSKA_", "KAFKA_", "PYTHON"))}
    return {**kept, "PATH": str(programs)}


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return message_from_bytes(archive.read(f"jesenska-{__version__}.dist-info/METADATA"))


def test_the_sdist_holds_the_source_and_what_its_build_reads(sdist: Path) -> None:
    needed = {"LICENSE", "README.md", "compiled-modules", "pyproject.toml", "setup.py"} | _source_files()
    assert needed - _files_of(sdist) == set()


def test_the_sdist_holds_no_build_products_and_no_tests(sdist: Path) -> None:
    files = _files_of(sdist)
    assert {file for file in files if file.endswith((".so", ".c", ".o", ".pyc"))} == set()
    metadata = {"PKG-INFO", "setup.cfg"} | {file for file in files if file.startswith("src/jesenska.egg-info/")}
    not_source = {file.partition("/")[0] for file in files - metadata - _source_files()}
    documents = {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "docs", "examples"}
    assert not_source == documents | {"MANIFEST.in", "compiled-modules", "pyproject.toml", "setup.py"}


def test_an_sdist_of_the_sdist_holds_the_same_files(sdist: Path, unpacked: Path, tmp_path: Path) -> None:
    shutil.copytree(unpacked, tmp_path / "source", ignore=shutil.ignore_patterns("build"))
    assert _files_of(_sdist_of(tmp_path / "source", tmp_path / "dist")) == _files_of(sdist)


def test_the_wheel_holds_every_module_and_a_library_for_each_that_is_compiled(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
    libraries = {file.split(".")[0] for file in files if file.endswith(".so")}
    assert libraries == {*_modules_to_compile(), "jesenska/records/_crecords", _LIBRARY}
    rest = {file for file in files if not file.endswith(".so")}
    assert rest == {file.removeprefix("src/") for file in _source_files() if file.endswith((".py", "py.typed"))}


def test_without_a_compiler_a_wheel_holds_the_source_alone(unpacked: Path, tmp_path: Path) -> None:
    source = shutil.copytree(unpacked, tmp_path / "source", ignore=shutil.ignore_patterns("build"))
    wheel = _wheel_of(source, tmp_path, {**os.environ, "CC": "a-compiler-that-is-not-there"})
    assert wheel.name == f"jesenska-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if name.endswith(".so")} == set()
        assert "jesenska/broker/requests/dispatch.py" in archive.namelist()


def test_the_metadata_says_for_whom_the_wheel_is(wheel: Path) -> None:
    metadata = _metadata(wheel)
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    # It has no public address yet: a link would lead nowhere.
    assert (metadata["Home-page"], metadata["Project-URL"]) == (None, None)
    classifiers = metadata.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    assert f"Programming Language :: Python :: {sys.version_info.major}.{sys.version_info.minor}" in classifiers


def test_an_installed_wheel_runs_compiled(bin_directory: Path, tmp_path: Path) -> None:
    assert [name for name in _COMPILERS if shutil.which(name, path=str(bin_directory))] == []
    modules = {name.replace("/", "."): name for name in (*_modules_to_compile(), "jesenska/records/_crecords")}
    program = (
        "import json, sys; from importlib import import_module; print(json.dumps({name: import_module(name).__file__ "
        "for name in sys.argv[1:]}))"
    )
    loaded = json.loads(_run([str(bin_directory / "python"), "-c", program, *modules], tmp_path, _alone(bin_directory)))
    assert set(loaded) == set(modules)
    site = bin_directory.parent.resolve() / "lib"
    assert {
        name
        for name, file in loaded.items()
        if not (file.endswith(".so") and Path(file).resolve().is_relative_to(site))
    } == set()


def test_installed_tools_answer(bin_directory: Path, tmp_path: Path) -> None:
    environment = _alone(bin_directory)
    assert _run([str(bin_directory / "jesenska"), "--version"], tmp_path, environment) == f"jesenska {__version__}\n"
    assert "--create" in _run([str(bin_directory / "kafka-topics"), "--help"], tmp_path, environment)


class _InstalledBroker(BrokerProcess):
    """`jesenska up`, as it was installed."""

    def __init__(self, data: Path, programs: Path) -> None:
        # Neither the source of this clone nor the wish to run from it.
        super().__init__(data, environment={"PATH": str(programs), "PYTHONPATH": "", "JESENSKA_PURE": ""})
        self._programs = programs

    def _command(self) -> list[str]:
        return [str(self._programs / "jesenska"), *self._arguments()]


def test_an_installed_broker_takes_a_record_and_gives_it_back(bin_directory: Path, tmp_path: Path) -> None:
    environment = _alone(bin_directory)
    with _InstalledBroker(tmp_path / "data", bin_directory) as broker:
        bootstrap = ["--bootstrap-server", broker.bootstrap, "--topic", "parcels"]
        _run([str(bin_directory / "kafka-console-producer"), *bootstrap], tmp_path, environment, typed="a record\n")
        consumer = [
            str(bin_directory / "kafka-console-consumer"),
            *bootstrap,
            "--from-beginning",
            "--max-messages",
            "1",
            "--timeout-ms",
            "20000",
        ]
        assert _run(consumer, tmp_path, environment) == "a record\n"
        # Brokers without their compiled modules say so.
        assert "slower than it could be" not in broker.log
