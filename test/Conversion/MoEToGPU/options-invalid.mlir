// RUN: not moira-opt %s -convert-moe-to-gpu=arch=sm_70 2>&1 | FileCheck %s

// CHECK: error: expected the architecture sm_80, sm_90a or sm_80,sm_90a, got 'sm_70'
module {}
