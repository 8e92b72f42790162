# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# RUN: %python %s
"""Which room may include what (docs/architecture.md).

Every include of a project header is looked up in the table of its room; one
that is not allowed there fails the test. A header of the room's own folder is
always allowed.
"""

import re

import sources

# Rooms of the compiler: the `moira/` headers that each may include. A room is
# the longest matching prefix; include/moira/X and lib/X are one room.
ROOMS = {
    "Dialect/MoE/IR": ["Dialect/MoE/IR/"],
    "Dialect/MoE/Utils": ["Dialect/MoE/IR/", "Dialect/MoE/Utils/"],
    "Dialect/MoE/Transforms": ["Dialect/MoE/"],
    "Dialect/NV/IR": ["Dialect/NV/IR/"],
    # These meet in Pipelines only.
    "Sharding": ["Dialect/MoE/", "Sharding/"],
    "Schedule": ["Dialect/MoE/", "Schedule/"],
    "Autodiff": ["Dialect/MoE/", "Autodiff/"],
    "Variants": ["Dialect/MoE/", "Variants/"],
    # A conversion knows no other conversion.
    "Conversion/Passes.": ["Conversion/"],
    "Conversion/MoEToCPU": ["Dialect/MoE/", "Conversion/Passes.",
                            "Conversion/MoEToCPU/", "abi.h"],
    "Conversion/MoEToGPU": ["Dialect/", "Conversion/Passes.",
                            "Conversion/MoEToGPU/", "abi.h"],
    "Conversion/LLVMToNVVM": ["Conversion/Passes.", "Conversion/LLVMToNVVM/"],
    "Conversion/NVVMToEmulator": ["Conversion/Passes.",
                                  "Conversion/NVVMToEmulator/",
                                  "emulator_abi.h"],
    # The manifest names the kernels of a GPU by both their contracts.
    "Conversion/MoEToRuntime": ["Dialect/", "Conversion/Passes.",
                                "Conversion/MoEToRuntime/", "abi.h",
                                "device_abi.h", "emulator_abi.h"],
    "Target": ["Target/", "abi.h"],
    "Pipelines": ["Dialect/", "Sharding/", "Schedule/", "Autodiff/",
                  "Variants/", "Conversion/", "Target/", "Pipelines/"],
    # The JIT is a session of the runtime over freshly compiled code, so it
    # stands on both halves.
    "JIT": ["Dialect/MoE/IR/", "Dialect/MoE/Utils/", "Conversion/Passes.",
            "Variants/", "Pipelines/", "Target/", "JIT/", "jit.h", "abi.h",
            "emulator_abi.h", "runtime.h"],
    "jit.h": ["Pipelines/", "Target/", "runtime.h"],
}
# Folders of the runtime that the compiler may use, and who may.
RUNTIME_FOR = {"cost/": sorted(ROOMS), "session/": ["JIT"], "base/": ["JIT"],
               "io/": ["JIT"]}
# Folders of the runtime that know less than the rest.
RUNTIME_ROOMS = {
    "base": ["base/", "moira/abi.h", "moira/runtime.h"],
    "statistics": ["base/", "statistics/", "moira/abi.h", "moira/runtime.h"],
    # Of ranks the model knows the integers: who holds and who gets what.
    "cost": ["base/", "cost/", "statistics/", "io/Npy.h",
             "collective/Placement.h", "collective/ExchangeLayout.h",
             "collective/RankGroups.h",
             "moira/abi.h"],
    "placement": ["base/", "cost/", "placement/", "collective/Placement.h",
                  "moira/abi.h"],
    "selection": ["base/", "cost/", "placement/", "selection/",
                  "collective/Placement.h", "moira/abi.h"],
    "emulator": ["base/", "emulator/", "moira/abi.h",
                 "moira/emulator_abi.h"],
    "device": ["base/", "device/", "emulator/", "moira/abi.h",
               "moira/emulator_abi.h"],
    "collective": ["base/", "bootstrap/", "collective/", "cost/",
                   "statistics/", "moira/abi.h"],
    "bootstrap": ["base/", "bootstrap/", "moira/abi.h"],
}
# What the IR of a dialect may not know of.
IR_FORBIDDEN = ("mlir/Pass/", "mlir/Transforms/", "mlir/Conversion/")
IR_ALLOWED = ("mlir/Transforms/InliningUtils.h",)  # an interface, no pass

INCLUDE = re.compile(r'^\s*#?\s*include\s+(["<])([^">]+)[">]', re.M)
RUNTIME_FOLDERS = {p.name + "/" for p in (sources.TOP / "runtime").iterdir()
                   if p.is_dir()}
faults, seen = [], 0


def allowed(header, prefixes):
    return any(header == p or (p[-1] in "/." and header.startswith(p))
               for p in prefixes)


def compiler_room(path):
    parts = path.parts[2:] if path.parts[0] == "include" else path.parts[1:]
    inner = "/".join(parts)
    rooms = [room for room in ROOMS if inner.startswith(room)]
    return max(rooms, key=len) if rooms else None


def check_compiler(path, room, header):
    folder = header.split("/")[0] + "/"
    if header.startswith("moira/"):
        if not allowed(header[len("moira/"):], ROOMS[room]):
            return f"the room {room} may not know {header}"
    elif folder in RUNTIME_FOLDERS:
        if room not in RUNTIME_FOR.get(folder, []):
            return f"the room {room} may not know {header} of the runtime"
    elif room.endswith("/IR") and header not in IR_ALLOWED and (
            header.startswith(IR_FORBIDDEN) or "/Transforms/" in header):
        return f"the IR of a dialect may not know passes: {header}"
    elif header == "mlir/Conversion/Passes.h":
        return f"{header} costs minutes; include the one header you need"
    return None


def check_runtime(path, header):
    room = path.parts[1]
    if header.startswith(("llvm/", "mlir/", "llvm-c/", "mlir-c/")):
        return f"the runtime may not know LLVM or MLIR: {header}"
    if header.startswith("moira/") and not (
            sources.TOP / "runtime/include" / header).exists():
        return f"the runtime may not know the compiler: {header}"
    if room in RUNTIME_ROOMS and ("/" in header) and (
            header.startswith("moira/") or header.split("/")[0] + "/" in
            RUNTIME_FOLDERS) and not allowed(header, RUNTIME_ROOMS[room]):
        return f"runtime/{room} may not know {header}"
    return None


def check_tool(path, header):
    if header.startswith("lib/") or "../" in header:
        return f"a tool may not know private headers: {header}"
    if path.parts[1] == "moira-import" and header.startswith(
            ("mlir/", "moira/Dialect", "moira/Pipelines", "moira/JIT")):
        return f"moira-import writes text and needs no MLIR: {header}"
    other = re.match(r"(moira-[a-z-]+)/", header)
    if other and other[1] != path.parts[1]:
        return f"a tool may not know another tool: {header}"
    return None


for path, text in sources.files(("include", "lib", "runtime", "tools"),
                                ".cpp", ".h", ".c", ".td"):
    room = None
    if path.parts[0] in ("include", "lib"):
        room = compiler_room(path)
        if not room and path.name != "pch.h":
            faults.append(f"{path}: expected a room in test/Layering/includes.py")
            continue
    for _, header in INCLUDE.findall(text):
        seen += 1
        if (sources.TOP / path).parent.joinpath(header).exists() \
                and "../" not in header:
            continue
        if path.parts[0] == "runtime":
            fault = check_runtime(path, header)
        elif path.parts[0] == "tools":
            fault = check_tool(path, header)
        else:
            fault = room and check_compiler(path, room, header)
        if fault:
            faults.append(f"{path}: {fault}")
sources.finish(faults, seen)
