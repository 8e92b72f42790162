# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""python -m moira describe FILE.moira"""

import argparse
import json
import sys

from . import Bundle, MoiraError, __version__, library_path


def _lines(bundle):
    manifest = bundle.manifest
    made = manifest["moira"]
    yield f"bundle       {bundle.path}"
    yield f"compiler     {made['version']}, abi {made['abi']}"
    target = manifest.get("target", {})
    yield f"target       {target.get('cpu') or 'any'}"
    for entry in bundle.entries.values():
        ranks = f", {entry.ranks} ranks" if entry.ranks > 1 else ""
        yield f"entry        {entry.name}{ranks}"
        for what, tensors in (("input", entry.inputs),
                              ("result", entry.results)):
            for tensor in tensors:
                yield f"  {what:<10} {tensor}"
        yield f"  variants   {', '.join(entry.variants)}"
        if entry.backward:
            yield f"  backward   {entry.backward}"
    for parameter in bundle.parameters.values():
        shape = ", ".join(map(str, parameter.shape))
        yield (f"parameter    {parameter.name}: {parameter.dtype}[{shape}], "
               f"{parameter.packed_bytes} bytes packed")


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m moira", description="What the package moira can say.")
    parser.add_argument("--version", action="version",
                        version=f"moira {__version__} ({library_path})")
    commands = parser.add_subparsers(dest="command", required=True)
    describe = commands.add_parser("describe",
                                   help="print what a bundle holds")
    describe.add_argument("file", metavar="FILE.moira")
    describe.add_argument("--json", action="store_true",
                          help="print the manifest")
    options = parser.parse_args(arguments)
    try:
        with Bundle(options.file) as bundle:
            if options.json:
                print(json.dumps(bundle.manifest, indent=2))
            else:
                print("\n".join(_lines(bundle)))
    except MoiraError as error:
        print(f"moira: error: {error.message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
