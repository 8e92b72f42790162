# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The wheel holds all that it needs to run a bundle."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

import moira
from support import BUNDLE, TOP


class Wheel(unittest.TestCase):
    def test_wheel(self):
        # Nothing may be fetched, so the tools must be here.
        for probe in ("import pip", "import setuptools.command.bdist_wheel"):
            done = subprocess.run([sys.executable, "-c", probe], text=True,
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
            if done.returncode != 0:
                self.skipTest(f"{sys.executable}: {probe}: "
                              f"{done.stdout.splitlines()[-1]}")
        with tempfile.TemporaryDirectory() as folder:
            # A copy: setuptools leaves its work beside the sources.
            for part in ("python", "runtime/CMakeLists.txt"):
                target = os.path.join(folder, part)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                if (TOP / part).is_dir():
                    shutil.copytree(TOP / part, target)
                else:
                    shutil.copy(TOP / part, target)
            made = subprocess.run(
                [sys.executable, "-m", "pip", "wheel", "--no-deps",
                 "--no-build-isolation", "--no-index", "-w", folder,
                 os.path.join(folder, "python")], text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env={**os.environ, "MOIRA_RUNTIME": moira.library_path})
            self.assertEqual(made.returncode, 0, made.stdout)
            wheel, = [f for f in os.listdir(folder) if f.endswith(".whl")]
            self.assertTrue(wheel.startswith(
                f"moira-{moira.__version__}-py3-none-linux_"), wheel)
            missing = subprocess.run(
                [sys.executable, "setup.py", "bdist_wheel"], text=True,
                cwd=os.path.join(folder, "python"), stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "MOIRA_RUNTIME": "/no/such/library.so"})
            self.assertEqual(missing.returncode, 1)
            self.assertEqual(
                missing.stdout.splitlines()[-1],
                "expected the runtime library at /no/such/library.so; "
                "scripts/build makes it, or set MOIRA_RUNTIME")
            site = os.path.join(folder, "site")
            with zipfile.ZipFile(os.path.join(folder, wheel)) as archive:
                archive.extractall(site)
            environment = {
                k: v for k, v in os.environ.items()
                if not k.startswith("MOIRA") and k != "PYTHONPATH"}
            done = subprocess.run(
                [sys.executable, "-c",
                 "import moira, sys; print(moira.library_path); "
                 f"print(moira.Bundle({str(BUNDLE)!r}).entry.name); "
                 "maps = open('/proc/self/maps').read(); "
                 "print(*{l.split()[-1] for l in maps.splitlines() "
                 "if 'libtbb' in l})"],
                cwd=site, text=True, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, env=environment)
            self.assertEqual(done.returncode, 0, done.stdout)
            library, entry, tbb = done.stdout.splitlines()
            lib = os.path.join(os.path.realpath(site), "moira", "lib")
            self.assertEqual(os.path.dirname(os.path.realpath(library)), lib)
            self.assertEqual(entry, "main")
            self.assertTrue(tbb.startswith(lib), tbb)
