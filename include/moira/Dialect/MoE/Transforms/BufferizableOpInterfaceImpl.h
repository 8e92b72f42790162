// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How one-shot bufferization brings the compute ops of the moe dialect into
// their buffer form.

#ifndef MOIRA_DIALECT_MOE_TRANSFORMS_BUFFERIZABLEOPINTERFACEIMPL_H
#define MOIRA_DIALECT_MOE_TRANSFORMS_BUFFERIZABLEOPINTERFACEIMPL_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace mlir::moe {

/// Attaches the models to gate, count, capacity, assign, noise, dispatch,
/// combine, grouped_matmul and pack. Operands are read, never written; every
/// tensor result is a new allocation that the op fills. `moe.expert` has no
/// buffer form: decompose it or form kernels before.
void registerBufferizableOpInterfaceExternalModels(DialectRegistry &registry);

} // namespace mlir::moe

#endif // MOIRA_DIALECT_MOE_TRANSFORMS_BUFFERIZABLEOPINTERFACEIMPL_H
