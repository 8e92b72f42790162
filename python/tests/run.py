# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs tests of the package: run.py [--needs MODULE] TEST...

Without MODULE in this interpreter it goes on in that of $MOIRA_TORCH_PYTHON;
where there is none, it says so and ends with 77, which ctest counts as skipped.
"""

import importlib.util
import os
import sys
import unittest

SKIPPED = 77


def has(module):
    try:
        return importlib.util.find_spec(module) is not None
    except Exception:  # the package that it is in cannot be imported
        return False


def main(arguments):
    needs = []
    while arguments and arguments[0] == "--needs":
        needs.append(arguments[1])
        arguments = arguments[2:]
    missing = [m for m in needs if not has(m)]
    if missing:
        other = os.environ.get("MOIRA_TORCH_PYTHON")
        if other and other != sys.executable:
            os.environ.pop("MOIRA_TORCH_PYTHON")
            os.execv(other, [other, *sys.argv])
        print(f"skipped: {sys.executable} has no {', '.join(missing)}; "
              "MOIRA_TORCH_PYTHON names an interpreter that has")
        return SKIPPED
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    suite = unittest.defaultTestLoader.loadTestsFromNames(arguments)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    for test, reason in result.skipped:
        print(f"skipped: {test.id()}: {reason}")
    if result.testsRun == 0:
        sys.exit("expected tests, found none")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
