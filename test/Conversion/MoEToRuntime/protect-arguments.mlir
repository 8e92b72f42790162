// RUN: moira-opt %s --moe-protect-arguments | FileCheck %s

// CHECK: func.func @f(%{{.*}}: tensor<?xf32> {bufferization.writable = false}, %{{.*}}: index)
func.func @f(%x: tensor<?xf32>, %n: index) {
  return
}
