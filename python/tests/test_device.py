# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sessions on the emulated GPU, and arrays that are there."""

import ctypes
import os
import subprocess
import tempfile
import unittest

import moira
from support import BUILD, TOP, Exporter, buffer

PROGRAM = """
func.func @main(%x: tensor<?x4xf32>, %w: tensor<?x4xf32>)
    -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %empty = tensor.empty(%n) : tensor<?x4xf32>
  %y = linalg.add ins(%x, %w : tensor<?x4xf32>, tensor<?x4xf32>)
      outs(%empty : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
"""


def values_of(result):
    """The elements of a result on the emulated device, whose memory is the
    host's."""
    count = result.nbytes // 4
    return list((ctypes.c_float * count).from_address(result._pointer))


class DeviceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = os.path.join(cls.folder.name, "add.mlir")
        with open(path, "w", encoding="ascii") as file:
            file.write(PROGRAM)
        cls.path = os.path.join(cls.folder.name, "add.moira")
        subprocess.run([BUILD / "bin" / "moira-compile", path,
                        "--target=emulated", "-o", cls.path], check=True,
                       cwd=TOP)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def session(self, **options):
        return moira.Session(moira.Bundle(self.path), **options)

    def test_host_arrays(self):
        session = self.session(device="emulated:80")
        y, = session.invoke(buffer(range(8), (2, 4)),
                            buffer([1] * 8, (2, 4)), returns="moira")
        self.assertEqual(y.device, (1, 0))
        self.assertEqual(y.tolist(), [[1, 2, 3, 4], [5, 6, 7, 8]])

    def test_device_arrays(self):
        session = self.session(device="emulated")
        host, = session.invoke(buffer(range(8), (2, 4)),
                               buffer([0] * 8, (2, 4)), returns="moira")
        there = Exporter(host, device=(12, 0))
        y, = session.invoke(there, buffer([1] * 8, (2, 4)), returns="moira")
        self.assertEqual(y.device, (12, 0))
        self.assertEqual(values_of(y), [1, 2, 3, 4, 5, 6, 7, 8])
        # A result is an input.
        z, = session.invoke(y, y, returns="moira")
        self.assertEqual(values_of(z), [2, 4, 6, 8, 10, 12, 14, 16])
        self.assertEqual(z.__dlpack_device__(), (12, 0))
        for show in (z.memory, z.numpy, z.tolist):
            with self.assertRaisesRegex(moira.MoiraError, "on device"):
                show()
        # It lives as long as the session did and longer.
        session.close()
        self.assertEqual(values_of(z)[7], 16)

    def test_device_arrays_elsewhere(self):
        session = self.session(device="emulated")
        x = session(buffer(range(8), (2, 4)), buffer([0] * 8, (2, 4)),
                    returns="moira")
        for device, found in (((2, 0), "number 0 of device type 2"),
                              ((12, 1), "number 1 of device type 12"),
                              ((4, 0), "got device type 4")):
            with self.assertRaisesRegex(moira.MoiraError, found):
                session.invoke(Exporter(x, device=device), x)

    def test_wrong_devices(self):
        with self.assertRaisesRegex(moira.MoiraError, "got 'tpu'"):
            self.session(device="tpu")
        with self.assertRaisesRegex(moira.MoiraError, "expected a device for "
                                    "a program for a GPU, got none"):
            self.session()


if __name__ == "__main__":
    unittest.main()
