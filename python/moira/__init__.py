# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moira from Python: compile programs with mixtures of experts, and run them.

    bundle = moira.compile("layer.mlir")        # or moira.Bundle("layer.moira")
    with moira.Session(bundle) as session:
        session.bind("checkpoint/")
        y = session(x)                          # numpy, torch, DLPack

`moira.torch.MoE` takes the place of a sparse block of transformers.
docs/python.md has examples.
"""

from ._abi import Status
from ._inputs import CopyWarning
from ._library import MoiraError, lib as _lib, library_path
from .bundle import Bundle, Entry, Parameter, TensorSpec
from .compiler import CompileError, compile, find_tool, import_layer
from .ranks import Ranks
from .session import Session
from .statistics import Layer, Memory, Step
from .tensor import Tensor
from .training import Gradients, Residuals

#: The version of the library that was loaded.
__version__ = _lib.moira_version().decode()

__all__ = [
    "Bundle", "CompileError", "CopyWarning", "Entry", "Gradients", "Layer",
    "Memory", "MoiraError", "Parameter", "Ranks", "Residuals", "Session",
    "Status", "Step", "Tensor", "TensorSpec", "compile", "find_tool", "import_layer",
    "library_path",
]
