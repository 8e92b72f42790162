# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the LLVM IR of kernels.cu (by clang) and triton_kernels.py (by Triton).

usage: generate.py [cuda] [triton]

Neither needs a GPU, nor CUDA. Triton is not installed by scripts/setup:
`pip install triton` in an environment of one's own. The files of this folder
were made by clang 22 and Triton 3.9.
"""

import pathlib
import re
import struct
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent


def strip(text):
    """Without what this test does not need: metadata but positions."""
    text = re.sub(r'source_filename = ".*"\n', "", text)
    text = re.sub(r"; ModuleID = .*\n", "", text)
    return text


def cuda():
    command = ["clang++-22", "-x", "cuda", "--cuda-gpu-arch=sm_80",
               "--cuda-device-only", "-emit-llvm", "-S", "-nocudainc",
               "-nocudalib", "-O1", "-fno-unroll-loops", "-std=c++17",
               "-Wno-unknown-cuda-version", "-gline-tables-only", "kernels.cu",
               "-o", "-"]
    text = subprocess.run(command, cwd=FOLDER, check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    text = text.replace(str(FOLDER), ".")
    (FOLDER / "cuda.ll").write_text(strip(text))


def older_floats(text):
    """Constants such as f0x3FB8AA3B, new in LLVM 23, as LLVM 22 reads them."""

    def double(match):
        value = struct.unpack("<f", struct.pack("<I", int(match[1], 16)))[0]
        bits = struct.unpack("<Q", struct.pack("<d", value))[0]
        return f"0x{bits:016X}"

    return re.sub(r"\bf0x([0-9A-Fa-f]{8})\b", double, text)


def triton():
    import triton as package
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    sys.path.insert(0, str(FOLDER))
    import triton_kernels

    for name, kernel, types, constants, divided in triton_kernels.KERNELS:
        names = kernel.arg_names
        signature = dict(zip(names, types))
        signature.update({one: "constexpr" for one in constants})
        source = ASTSource(fn=kernel, signature=signature,
                           constexprs=constants,
                           attrs={(i,): [["tt.divisibility", 16]]
                                  for i in divided})
        compiled = package.compile(source, target=GPUTarget("cuda", 80, 32),
                                   options={"num_warps": 4})
        text = older_floats(compiled.asm["llir"])
        text = re.sub(r'directory: ".*?"', 'directory: "."', text)
        header = f"; dynamic shared memory: {compiled.metadata.shared}\n"
        (FOLDER / f"triton-{name}.ll").write_text(header + strip(text))


if __name__ == "__main__":
    for step in sys.argv[1:] or ["cuda", "triton"]:
        {"cuda": cuda, "triton": triton}[step]()
