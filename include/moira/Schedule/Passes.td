// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_SCHEDULE_PASSES_TD
#define MOIRA_SCHEDULE_PASSES_TD

include "mlir/Pass/PassBase.td"

def SchedulePass : Pass<"moe-schedule", "::mlir::func::FuncOp"> {
  let summary = "cut exchange, experts and exchange back in chunks";
  let description = [{
    Puts the two exchanges of a layer and what stands between them in a loop over
    `moe.chunks`: each iteration brings one part of the rows, computes with it and
    takes its results back into the rows that the loop carries. How many parts
    there are is the plan's choice, at run time. The gate, the dispatch and the
    combine are never cut, so that no chunk changes which rows there are.

    The program still has values and one order; `moe.queue` and `moe.stage` say
    which queue runs an op and in which order: first all ops of stage 0, then of
    stage 2 on the queue `communication`, those of stage 1 on `compute`.
    `moe-make-asynchronous` follows them.

    A layer whose rows meet between the exchanges, or whose received rows are
    used elsewhere, stays as it is, with a missed-optimisation remark that names
    the op.

    ```mlir
    %groups, %n = moe.receive_sizes %matrix at #p equal : ...
    %away = moe.exchange to_experts %rows, %matrix, %n at #p equal : ...
    %out = moe.expert rows(%away) groups(%groups) per_expert(%w) ...
    %back = moe.exchange to_tokens %out, %matrix, %bound at #p equal : ...
    ```
    becomes
    ```mlir
    %d = moe.chunks equal
    %init = tensor.empty(%bound) : tensor<?x8xf32>
    %back = scf.for %i = %c0 to %d step %c1 iter_args(%rest = %init) {
      %groups, %n = moe.receive_sizes %matrix at #p equal chunk(%i of %d) : ...
      %away = moe.exchange to_experts %rows, %matrix, %n at #p equal
          chunk(%i of %d) {moe.queue = "communication", moe.stage = 0} : ...
      %out = moe.expert rows(%away) groups(%groups) per_expert(%w)
          {moe.queue = "compute", moe.stage = 1} ...
      %next = moe.exchange to_tokens %out, %matrix, %bound at #p equal
          chunk(%i of %d) init(%rest)
          {moe.queue = "communication", moe.stage = 2} : ...
      scf.yield %next
    }
    ```
  }];
  let options = [Option<"kind", "kind", "std::string", "\"equal\"",
                        "how exchanges are cut: equal or groups">];
  let statistics = [
    Statistic<"numLayers", "num-layers", "layers that were cut in chunks">];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect",
                           "::mlir::moe::MoEDialect"];
}

def MakeAsynchronousPass
    : Pass<"moe-make-asynchronous", "::mlir::func::FuncOp"> {
  let summary = "start transfers early and wait for them late";
  let description = [{
    On the buffer form, the last change of phase `bufferized`.

    * A loop over chunks is split in four: one that asks for the sizes of all
      chunks, one that starts all exchanges to the experts, one that waits for a
      chunk, computes with it and starts its way back, one that waits for those. Rows received, and results to send, of all
      chunks stand in one buffer each, a chunk at a multiple of 64 bytes after the
      one before it. Tickets stand in small memrefs.
    * A gather of weights that are a parameter starts where the step begins, for a
      layer after the first where the exchanges of the layer before it have
      ended, and is waited for at the first use.
    * A sum over ranks, and an exchange with `moe.queue = "communication"` outside
      of loops over chunks, starts as soon as what it reads is written, and is
      waited for where its result is used: other products run beside it.
    * Any other transfer becomes a start and a wait.

    With one chunk the same transfers and products run in the same order as
    before.

    ```mlir
    scf.for %i = %c0 to %d step %c1 {
      %n = moe.receive_sizes %m at #p equal chunk(%i of %d) outs(%g) : ...
      %away = memref.alloc(%n) : memref<?x8xf32>
      moe.exchange to_experts %rows, %m, %n at #p equal chunk(%i of %d) outs(%away)
      %out = memref.alloc(%n) : memref<?x8xf32>
      moe.grouped_matmul rows(%away) groups(%g) ... outs(%out)
      moe.exchange to_tokens %out, %m, %bound at #p equal chunk(%i of %d)
          outs(%back)
    }
    ```
    becomes
    ```mlir
    %total = scf.for %i = %c0 to %d step %c1 iter_args(%rows = %c0) {
      %g_i = memref.view %gs[...][] : memref<?xi8> to memref<2xi32>
      %n = moe.receive_sizes %m at #p equal chunk(%i of %d) outs(%g_i) : ...
      memref.store %n, %ns[%i]
      ...
    }
    %aways = memref.alloc(...) : memref<?xi8>
    scf.for %i = %c0 to %d step %c1 iter_args(%rows = %c0) {
      %away_i = memref.view %aways[...][%n_i] : memref<?xi8> to memref<?x8xf32>
      %t = moe.start_exchange to_experts %home, %away_i, %m chunk(%i of %d) ...
      memref.store %t, %tickets[%i]
      ...
    }
    scf.for %i = %c0 to %d step %c1 iter_args(%rows = %c0) {
      moe.wait %ticket_i
      moe.grouped_matmul rows(%away_i) groups(%g_i) ... outs(%out_i)
      %t = moe.start_exchange to_tokens %back, %out_i, %m chunk(%i of %d) ...
      ...
    }
    scf.for %i = %c0 to %d step %c1 {
      moe.wait %back_ticket_i
    }
    ```
  }];
  let statistics = [
    Statistic<"numLoops", "num-loops", "loops over chunks that were split">];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::memref::MemRefDialect",
                           "::mlir::scf::SCFDialect",
                           "::mlir::moe::MoEDialect"];
}

def CheckSchedulePass : Pass<"moe-check-schedule", "::mlir::func::FuncOp"> {
  let summary = "prove that no transfer in flight meets another access";
  let description = [{
    Changes nothing. Interprets a function with asynchronous transfers, once each
    for 1 to 4 chunks: numbers of chunks, sizes received and offsets are
    followed as numbers, memory as byte ranges of the buffer it belongs to, loops
    with transfers iteration by iteration, any other op by its memory effects.
    A transfer is in flight from its start to a wait for it or a later one. An
    error that names both ops, and the iteration of each, is

    * a read or write of memory that a transfer in flight writes,
    * a write of memory that a transfer in flight reads,
    * two transfers in flight that write the same memory at the experts,
    * the end of the life of memory in flight: `memref.dealloc`, the end of the
      iteration that has allocated it, or the end of the function,
    * a wait for a ticket that no start has given,
    * a start that is never waited for,
    * a collective under a condition, or in a loop, that ranks may not share: one
      that depends on anything but constants and numbers of chunks.

    ```mlir
    %t = moe.start_exchange to_experts %rows, %away, %m chunk(%i of %d) ...
    // error: 'memref.load' op expected a wait for the transfer that writes this
    // memory before it is read
    %v = memref.load %away[%c0, %c0] : memref<?x8xf32>
    moe.wait %t
    ```
  }];
}

#endif // MOIRA_SCHEDULE_PASSES_TD
