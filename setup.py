"""Builds what is compiled, where a C compiler is there: the record codec (Cython) and the modules that every request
goes through (mypyc, from their own source). Without a compiler, or where one of the two cannot be built, the install
goes on: the codec's pure twin and the modules' source run instead. As usual CC in the environment names the compiler,
and CFLAGS has flags for it; an optimisation level there (CFLAGS=-O1 builds sooner) takes the place of ours."""

import gc
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# setuptools brings them under this name.
from distutils.ccompiler import new_compiler  # isort: skip
from distutils.sysconfig import customize_compiler  # isort: skip

ROOT = Path(__file__).parent
CODEC = "src/jesenska/records/_crecords.pyx"
#: The shared library behind all modules that mypyc compiles; each module is a small extension that calls into it.
LIBRARY = "jesenska._compiled"
#: Where a wheel is put together, empty at first and removed at the end: what an earlier build has left must not get
#: into it.
WHEEL = "build/wheel"
#: Where C code lies while it is built; setuptools wants a path inside the project.
C_CODE = "build/mypyc"
#: Leave out optimisations that gcc spends a fifth of its time on, and that save what mypyc makes no instruction.
WITHOUT_USE = ["-fno-tree-pta", "-fno-schedule-insns2", "-fno-gcse"]
BUILDING = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}


def compiler():
    """The compiler that extensions are built with: its name, and what it is told each time."""
    found = new_compiler()
    customize_compiler(found)
    return found.compiler


def has_compiler():
    """True if that compiler is on this machine."""
    return shutil.which(compiler()[0]) is not None


def accepted(flags):
    """These flags; none if the compiler is another than gcc and does not know all of them."""
    return (
        flags
        if subprocess.run([*compiler(), "-Werror", *flags, "-E", "-xc", os.devnull], capture_output=True).returncode
        == 0
        else []
    )


def optimised(level):
    """The flag for this level; none where the environment asks for another."""
    return [] if re.search(r"(^|\s)-O", os.environ.get("CFLAGS", "")) else [f"-O{level}"]


def compiled_modules():
    """Paths of the modules that mypyc compiles."""
    listing = ROOT / "compiled-modules"
    lines = listing.read_text().splitlines() if listing.exists() else []
    return [f"src/jesenska/{line.strip()}" for line in lines if line.strip() and not line.startswith("#")]


def all_translated(codec, directory):
    """The modules as extensions, or none, and meanwhile the codec in C below `directory`; where that fails it stays as
    it was, and building it says why."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    codec_in_c = f"{directory}/_crecords.c"
    with subprocess.Popen(
        [sys.executable, "-m", "cython", "-o", codec_in_c, CODEC], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as cython:
        extensions = translated(directory)
    if cython.returncode == 0:
        codec.sources = [codec_in_c]
    return extensions


def translated(directory):
    """The modules as extensions, in C below `directory`, a file for each module; none if they cannot be translated."""
    # Types are judged by script/test; here packages without type hints may be missing, and everything else is taken as
    # it is.
    options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    try:
        from mypyc.build import mypycify

        extensions = mypycify(
            [*options, *compiled_modules()], debug_level="0", multi_file=True, group_name=LIBRARY, target_dir=directory
        )
    except (Exception, SystemExit) as error:
        sys.stderr.write(f"warning: the request path is not compiled: {error}\n")
        return []
    # Else the collector goes through all of the translation's data once more when the process ends, which takes
    # seconds.
    gc.freeze()
    unwanted = accepted(WITHOUT_USE)
    for extension in extensions:
        extension.optional = True
        # The headers of a library with a dotted name lie in a directory of their own.
        extension.include_dirs.append(str(Path(directory, *LIBRARY.split(".")[:-1])))
        # A warning that another compiler has is no reason to do without what it has compiled.
        flags = [flag for flag in extension.extra_compile_args if flag != "-Werror" and not flag.startswith("-O")]
        # No other library replaces these functions, so that they can be called directly.
        extension.extra_compile_args = [*flags, *optimised(2), *unwanted, "-fvisibility=hidden"]
    return extensions


class BuildExtensions(build_ext):
    """Compiles the C files of one extension beside each other, and keeps all of mypyc's extensions or none: they are
    of use only together."""

    def build_extensions(self):
        compile_in_turn = self.compiler.compile
        with ThreadPoolExecutor(os.cpu_count()) as processors:

            def compile_side_by_side(sources, **options):
                if len(sources) == 1:
                    return compile_in_turn(sources, **options)
                # The largest first, so that no processor is left with it at the end.
                by_size = sorted(sources, key=lambda source: Path(source).stat().st_size, reverse=True)
                compiled = processors.map(lambda source: compile_in_turn([source], **options), by_size)
                return [path for paths in compiled for path in paths]

            self.compiler.compile = compile_side_by_side
            super().build_extensions()
        together = [Path(self.build_lib) / self.get_ext_filename(extension.name) for extension in request_path]
        if not all(path.exists() for path in together):
            for path in together:
                path.unlink(missing_ok=True)


extensions = []
# setup.py is loaded several times before anything is built.
request_path = []
if has_compiler():
    records = Path(CODEC).parent
    parts = sorted(str(path) for pattern in ("*.pxi", "*.h") for path in records.glob(pattern))
    flags = [*optimised(3), "-g0"]
    codec = Extension(
        "jesenska.records._crecords",
        [CODEC],
        depends=parts,
        include_dirs=[str(records)],
        extra_compile_args=flags,
        optional=True,
    )
    # Its C code is a build product: it does not go beside its source.
    codec.cython_c_in_temp = True
    request_path = all_translated(codec, C_CODE) if BUILDING & set(sys.argv) else []
    extensions = [codec, *request_path]
else:
    sys.stderr.write("warning: no C compiler is there: nothing is compiled, everything runs from source\n")
options = {"build_ext": {"parallel": True}}
if "bdist_wheel" in sys.argv:
    shutil.rmtree(ROOT / WHEEL, ignore_errors=True)
    options["build"] = {"build_base": WHEEL}
try:
    setup(ext_modules=extensions, cmdclass={"build_ext": BuildExtensions}, options=options)
finally:
    for directory in (C_CODE, WHEEL):
        shutil.rmtree(ROOT / directory, ignore_errors=True)
