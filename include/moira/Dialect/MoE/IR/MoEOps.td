// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_MOE_IR_MOEOPS_TD
#define MOIRA_DIALECT_MOE_IR_MOEOPS_TD

include "moira/Dialect/MoE/IR/RoutingOps.td"
include "moira/Dialect/MoE/IR/LossOps.td"
include "moira/Dialect/MoE/IR/MovementOps.td"
include "moira/Dialect/MoE/IR/ExpertOps.td"
include "moira/Dialect/MoE/IR/GradientOps.td"
include "moira/Dialect/MoE/IR/CollectiveOps.td"
include "moira/Dialect/MoE/IR/ReductionOps.td"
include "moira/Dialect/MoE/IR/ProgramOps.td"

#endif // MOIRA_DIALECT_MOE_IR_MOEOPS_TD
