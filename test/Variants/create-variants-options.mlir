// RUN: not moira-opt %s --moe-create-variants=rows=decode,decode 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not moira-opt %s --moe-create-variants=rows=huge 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not moira-opt %s --moe-create-variants=entry=other 2>&1 | FileCheck %s --check-prefix=ENTRY

// TWICE: expected different row classes, decode or prefill, got 'decode,decode'
// UNKNOWN: expected different row classes, decode or prefill, got 'huge'
// ENTRY: expected a function 'other' with a body as entry, got none
func.func @main() {
  return
}
