# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Puts the runtime library into the wheel.

The library is that of $MOIRA_RUNTIME, else of build/ beside this folder; the
threading library that it needs comes along where it stands in the system.
$MOIRA_WHEEL_TOOLS=1 adds moira-compile and moira-import, which need LLVM.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sysconfig

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent


def version():
    """The library's own version, in the one place where it stands."""
    text = (TOP / "runtime" / "CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"project\(moira-runtime VERSION ([0-9.]+)", text)[1]


def runtime():
    path = pathlib.Path(os.environ.get("MOIRA_RUNTIME") or
                        TOP / "build" / "lib" / "libmoira_runtime.so")
    if not path.exists():
        raise SystemExit(f"expected the runtime library at {path}; "
                         "scripts/build makes it, or set MOIRA_RUNTIME")
    return path


def needed(library):
    """Paths of the threading library, as the loader finds it."""
    try:
        lines = subprocess.run(["ldd", library], check=True, text=True,
                               stdout=subprocess.PIPE).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []
    found = [re.search(r"(libtbb\.so\.\d+) => (\S+)", line) for line in lines]
    return [(m[1], m[2]) for m in found if m]


class BuildPy(build_py):
    def run(self):
        super().run()
        folder = pathlib.Path(self.build_lib) / "moira"
        (folder / "lib").mkdir(parents=True, exist_ok=True)
        library = runtime()
        shutil.copy(library, folder / "lib" / "libmoira_runtime.so")
        for name, path in needed(library):
            shutil.copy(path, folder / "lib" / name)
        if os.environ.get("MOIRA_WHEEL_TOOLS") == "1":
            (folder / "bin").mkdir(exist_ok=True)
            for tool in ("moira-compile", "moira-import"):
                shutil.copy(TOP / "build" / "bin" / tool, folder / "bin")


class Wheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        # Any Python 3, one machine: ctypes needs no interface of the
        # interpreter.
        platform = sysconfig.get_platform().replace("-", "_")
        return "py3", "none", platform.replace(".", "_")


class Binary(Distribution):
    def has_ext_modules(self):
        return True


setup(version=version(), distclass=Binary,
      cmdclass={"build_py": BuildPy, "bdist_wheel": Wheel})
