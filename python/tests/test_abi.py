# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The package says of structs, codes and functions what the headers say."""

import ctypes
import os
import re
import subprocess
import tempfile
import unittest

from moira import _abi
from support import TOP, python

INCLUDE = TOP / "runtime" / "include"
HEADERS = ("abi.h", "runtime.h", "training.h", "ranks.h", "queue.h",
           "adapt.h")


def compiled(lines):
    """What a C program prints that includes the headers."""
    text = "".join(f'#include "moira/{h}"\n' for h in HEADERS)
    text += "#include <stdio.h>\nint main(void) {\n" + "\n".join(lines)
    text += "\nreturn 0;\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        source, program = f"{folder}/abi.c", f"{folder}/abi"
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        flags = [f"-I{INCLUDE}"]
        if os.environ.get("MOIRA_DLPACK_DIR"):
            flags.append(f"-I{os.environ['MOIRA_DLPACK_DIR']}")
        subprocess.run([os.environ.get("CC", "cc"), *flags, source, "-o",
                        program], check=True)
        return subprocess.run([program], check=True, text=True,
                              stdout=subprocess.PIPE).stdout.splitlines()


#: What the manifest tells, as JSON.
_UNUSED = ["moira_bundle_own_results", "moira_bundle_backward"]


class Libraries(unittest.TestCase):
    def load(self, version):
        """What an import says of a library of this version without more."""
        with tempfile.TemporaryDirectory() as folder:
            source, library = f"{folder}/old.c", f"{folder}/old.so"
            with open(source, "w", encoding="utf-8") as file:
                file.write("unsigned moira_abi_version(void) { return "
                           f"{version}; }}\n")
            subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC",
                            source, "-o", library], check=True)
            status, output = python("import moira", MOIRA_RUNTIME=library)
        self.assertEqual(status, 1)
        return output.splitlines()[-1]

    def test_refused(self):
        ours = _abi.ABI_VERSION
        self.assertRegex(self.load(ours + 1), "ImportError: .*old.so: expected "
                         f"a moira runtime with abi version {ours}, got "
                         f"{ours + 1}")
        self.assertRegex(self.load(ours), "ImportError: .*old.so: expected a "
                         "moira runtime with moira_version, got an older one")


class Abi(unittest.TestCase):
    def test_numbers(self):
        named = {f"MOIRA_{status.name}": status.value
                 for status in _abi.Status}
        named.update((f"MOIRA_{name.upper()}", i)
                     for i, name in enumerate(_abi.DTYPES))
        named.update((f"MOIRA_PART_{name.upper()}", i)
                     for i, name in enumerate(_abi.PARTS))
        named.update(MOIRA_PART_COUNT=len(_abi.PARTS),
                     MOIRA_ABI_VERSION=_abi.ABI_VERSION, kDLCPU=_abi.CPU,
                     kDLInt=0, kDLUInt=1, kDLFloat=2, kDLBfloat=4,
                     MOIRA_SGD=0, MOIRA_ADAM=1, MOIRA_ADAMW=2,
                     MOIRA_ADAPT_FIXED=0, MOIRA_ADAPT_MODEL=1,
                     MOIRA_ADAPT_MEASURED=2)
        values = compiled(f'printf("%d\\n", (int){name});' for name in named)
        self.assertEqual(dict(zip(named, map(int, values))), named)

    def test_all_codes_are_known(self):
        text = (INCLUDE / "moira" / "abi.h").read_text()
        block = re.search(r"enum \{\s*MOIRA_OK.*?\}", text, re.S)[0]
        self.assertEqual(len(re.findall(r"MOIRA_\w+ = ", block)),
                         len(_abi.Status))

    def test_structs(self):
        places, lines = {}, []
        for name, kind in _abi.STRUCTS.items():
            for field, *_ in kind._fields_:
                at = getattr(kind, field)
                places[name, field] = (at.offset, at.size)
                lines.append(
                    f'printf("%zu %zu\\n", offsetof({name}, {field}), '
                    f"sizeof((({name} *)0)->{field}));")
            places[name, ""] = (0, ctypes.sizeof(kind))
            lines.append(f'printf("0 %zu\\n", sizeof({name}));')
        got = [tuple(map(int, line.split())) for line in compiled(lines)]
        self.assertEqual(dict(zip(places, got)), places)

    def test_functions(self):
        declared = {}
        for header in HEADERS:
            text = (INCLUDE / "moira" / header).read_text()
            for name, arguments in re.findall(
                    r"MOIRA_API[^;(]*?\b(moira_\w+)\(([^)]*)\)", text):
                declared[name] = (0 if arguments.strip() == "void"
                                  else arguments.count(",") + 1)
        for name, (_, arguments) in _abi.FUNCTIONS.items():
            with self.subTest(name):
                self.assertEqual(declared.get(name), len(arguments))
        # Threads of Python take the place of queues.
        self.assertEqual([name for name in declared
                          if name not in _abi.FUNCTIONS
                          and not name.startswith("moira_queue_")], _UNUSED)
