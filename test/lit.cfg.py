# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Substitutions: %moira_src, %moira_lib (folder of libraries), %examples,
# %python, %cc, %cxx, %mlir_libs. Features: `shared` when reference data stands
# in a folder `shared` beside the checkout (%shared), `sanitizers`, `x86`. A tool
# that was not built makes its tests fail: there is no feature for tools.

import os
import platform

import lit.formats

config.name = "Moira"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test", ".py"]
config.excludes = ["Inputs", "fixtures", "lit.cfg.py", "lit.local.cfg"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.moira_binary_dir, "test")

# Ours first, then LLVM's (FileCheck, not, split-file, mlir-runner, ...), then
# the system's.
config.environment["PATH"] = os.pathsep.join(
    [config.moira_tools_dir, config.llvm_tools_dir,
     os.environ.get("PATH", "/usr/bin:/bin")])
# Nothing that a test writes may land in the user's home.
config.environment["HOME"] = config.test_exec_root
config.environment["XDG_CACHE_HOME"] = os.path.join(config.test_exec_root,
                                                    ".cache")
# Scripts of the source tree leave nothing beside themselves.
config.environment["PYTHONDONTWRITEBYTECODE"] = "1"
for name in ("LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
if config.moira_sanitize:
    config.available_features.add("sanitizers")
    # MLIR itself is not instrumented, so containers that cross its border look
    # wrongly annotated; what libraries keep until exit is no leak of ours.
    config.environment.setdefault(
        "ASAN_OPTIONS", "detect_container_overflow=0:detect_leaks=0")

config.substitutions += [
    ("%moira_src", config.moira_source_dir),
    ("%moira_lib", config.moira_lib_dir),
    ("%examples", os.path.join(config.moira_source_dir, "examples")),
    ("%python", f'"{config.python}"'),
    ("%cc", config.cc),
    ("%cxx", config.cxx),
    ("%mlir_libs", config.llvm_lib_dir),
    ("%mlir_include", config.mlir_include_dirs.split(";")[0]),
    ("%llvm_tools", config.llvm_tools_dir),
]

# The library that stands in for NCCL is built where NCCL's header is.
if os.path.exists(os.path.join(config.moira_lib_dir,
                               "libmoira_nccl_standin.so")):
    config.available_features.add("nccl")

if platform.machine() in ("x86_64", "AMD64"):
    config.available_features.add("x86")

shared = os.path.join(os.path.dirname(config.moira_source_dir), "shared")
if os.path.isdir(shared):
    config.available_features.add("shared")
    config.substitutions.append(("%shared", shared))
