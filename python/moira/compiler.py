# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles programs with the tools of Moira."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Iterable, Mapping, Optional, Sequence, Union

from ._library import MoiraError, Status, invalid
from .bundle import Bundle

_FOLDER = pathlib.Path(__file__).resolve().parent


class CompileError(MoiraError):
    """A program or a configuration was refused.

    Attributes:
        diagnostics: all that the tool printed.
    """

    def __init__(self, code, message, diagnostics=""):
        super().__init__(code, message)
        self.diagnostics = diagnostics

    def __reduce__(self):
        return type(self), (self.code, self.message, self.diagnostics)


def find_tool(name: str) -> str:
    """The path of `moira-compile` or `moira-import`: what $MOIRA_COMPILE or
    $MOIRA_IMPORT names, else beside the package, in the build folder of the
    checkout, or on $PATH.

    Raises:
        MoiraError: NOT_FOUND.
    """
    variable = name.upper().replace("-", "_")
    given = os.environ.get(variable)
    if given:
        found = shutil.which(given)
        if not found:
            raise MoiraError(Status.NOT_FOUND, f"${variable}: expected a "
                             f"program, got '{given}'")
        return found
    for folder in (_FOLDER / "bin", _FOLDER.parent.parent / "build" / "bin"):
        if os.access(folder / name, os.X_OK):
            return str(folder / name)
    found = shutil.which(name)
    if not found:
        raise MoiraError(Status.NOT_FOUND,
                         f"expected {name} beside the package, on $PATH or at "
                         f"${variable}, found none")
    return found


def _run(name, arguments, text):
    """Standard output of a tool, or its diagnostics as an error."""
    done = subprocess.run([find_tool(name), *arguments], input=text,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode == 0:
        return done.stdout
    diagnostics = done.stderr.decode("utf-8", "replace")
    lines = [line for line in diagnostics.splitlines() if "error:" in line]
    line = (lines or diagnostics.splitlines() or
            [f"{name}: exit status {done.returncode}"])[0]
    # A signal ends what has a mistake of its own.
    code = (Status.INVALID_ARGUMENT if done.returncode > 0 else Status.FAILED)
    raise CompileError(code, line, diagnostics)


def _grid(ranks):
    """The option's value; None: not given."""
    if isinstance(ranks, int):
        return ranks if ranks != 1 else None
    return ",".join(str(number) for number in ranks)


def compile(program: Union[str, os.PathLike], *,
            entry: Optional[str] = None, gradients: bool = False,
            recompute: bool = False, optimizers: Iterable[str] = (),
            target_cpu: Optional[str] = None,
            opt_level: Optional[int] = None,
            rows: Optional[Sequence[str]] = None,
            ranks: Union[int, Sequence[int]] = 1, r: Optional[int] = None,
            schedule: Optional[str] = None, variants: Optional[str] = None,
            spare_slots: Optional[int] = None,
            hidden_blocks: Optional[int] = None,
            disable_fusion: Iterable[str] = (), oracle: bool = False,
            options: Iterable[str] = ()) -> Bundle:
    """Compiles a program to a bundle in memory.

    Args:
        program: the path of a `.mlir` file, or the text of a program (what
            has a line break or a brace is text).
        entry: the function to compile; None: the public one.
        gradients: compile what computes the entry's gradients as well.
        recompute: keep less for them and compute it again.
        optimizers: bring the code of these for `Session.update`, of "sgd",
            "adam" and "adamw"; needs gradients.
        target_cpu: None: this machine's.
        opt_level: 0 to 3.
        rows: row classes, of "decode" and "prefill".
        ranks, r, schedule, spare_slots, hidden_blocks: how it is spread over
            ranks, as `moira-compile --help` says. Several numbers of ranks
            give a bundle of which a session takes the one for its ranks.
        variants: for `Session.adapt`, what the bundle has to choose from, such
            as "r=auto schedule=equal,groups rows=decode,prefill".
        disable_fusion: names of fusions to leave out.
        oracle: compile the decomposed program, what every operation means.
        options: more arguments of `moira-compile`.

    Raises:
        CompileError: with the compiler's first error, and all of them.
        MoiraError: NOT_FOUND where there is no compiler or no such file.
    """
    arguments = ["-o", "-"]
    for flag, value in (("entry", entry), ("target-cpu", target_cpu),
                        ("grid", _grid(ranks)), ("r", r),
                        ("schedule", schedule), ("variants", variants),
                        ("spare-slots", spare_slots),
                        ("hidden-blocks", hidden_blocks)):
        if value is not None:
            arguments.append(f"--{flag}={value}")
    if opt_level is not None:
        arguments.append(f"-O{opt_level}")
    if rows is not None:
        arguments.append("--rows=" + ",".join(rows))
    for flag, names in (("disable-fusion", disable_fusion),
                        ("optimizer", optimizers)):
        names = list(names)
        if names:
            arguments.append(f"--{flag}={','.join(names)}")
    for flag, wanted in (("--oracle", oracle), ("--gradients", gradients),
                         ("--moe-recompute", recompute)):
        if wanted:
            arguments.append(flag)
    arguments += options
    text = os.fspath(program)
    if isinstance(program, str) and ("\n" in text or "{" in text):
        return Bundle(_run("moira-compile", ["-", *arguments],
                           text.encode("utf-8")))
    if not os.path.exists(text):
        raise MoiraError(Status.NOT_FOUND,
                         f"expected a program, found no file '{text}'")
    return Bundle(_run("moira-compile", [text, *arguments], None))


def import_layer(config: Union[str, os.PathLike, Mapping], *, layer: int = -1,
                 dtype: Optional[str] = None, stacked: bool = False,
                 router_logits: bool = False) -> str:
    """Writes the program of a model's layer of experts.

    Args:
        config: a folder with a Hugging Face checkpoint, whose tensors are
            looked at, or the content of a `config.json` as a dict.
        layer: -1: the first that has experts.
        dtype: "f32", "bf16" or "f16"; None: the configuration's.
        stacked: with a dict: name parameters as transformers holds them, all
            experts in one tensor, not as published checkpoints do.
        router_logits: the program returns the router's logits as well.

    Returns:
        The text of the program, for `compile`.

    Raises:
        CompileError: naming the key that is wrong.
    """
    arguments = []
    if layer >= 0:
        arguments.append(f"--layer={layer}")
    if dtype is not None:
        arguments.append(f"--dtype={dtype}")
    if router_logits:
        arguments.append("--router-logits")
    if not isinstance(config, Mapping):
        if stacked:
            raise invalid("stacked: expected a configuration as a dict, got a "
                          "folder, whose tensors have their names")
        return _run("moira-import", [os.fspath(config), *arguments],
                    None).decode()
    if stacked:
        arguments.append("--stacked")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        return _run("moira-import", [folder, "--config-only", *arguments],
                    None).decode()
