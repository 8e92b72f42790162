// RUN: moira-opt %S/round-trip.mlir > %t.text
// RUN: moira-opt %S/round-trip.mlir --emit-bytecode -o %t.mlirbc
// RUN: moira-opt %t.mlirbc > %t.read
// RUN: diff %t.text %t.read
// RUN: moira-opt %S/attributes.mlir -allow-unregistered-dialect > %t.text
// RUN: moira-opt %S/attributes.mlir -allow-unregistered-dialect --emit-bytecode -o %t.mlirbc
// RUN: moira-opt %t.mlirbc -allow-unregistered-dialect > %t.read
// RUN: diff %t.text %t.read

// Bytecode holds what the text holds, for every op and attribute.
