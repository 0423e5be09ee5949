"""Builds the compiled record codec where a C compiler is there; without one the install goes on and the pure twin is used."""

from pathlib import Path

from setuptools import Extension, setup

SOURCE = Path("src/jesenska/records/_crecords.pyx")
extensions = []
if (Path(__file__).parent / SOURCE).exists():
    extensions.append(
        Extension(
            "jesenska.records._crecords",
            [str(SOURCE)],
            depends=["src/jesenska/records/crc32c.h"],
            extra_compile_args=["-O3"],
            optional=True,
        )
    )
setup(ext_modules=extensions)
