/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The layouts of moira/abi.h, which includes this file at its end.
 */
#ifndef MOIRA_ABI_LAYOUT_H
#define MOIRA_ABI_LAYOUT_H

#include "moira/abi.h"

/* The layouts that generated code has built in (64-bit machines only). */
#if defined(__cplusplus)
#define MOIRA_ABI_ASSERT(condition) static_assert(condition, "ABI layout")
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define MOIRA_ABI_ASSERT(condition) _Static_assert(condition, "ABI layout")
#else
#define MOIRA_ABI_ASSERT(condition)                                            \
  extern int moira_abi_assert[(condition) ? 1 : -1]
#endif
MOIRA_ABI_ASSERT(sizeof(void *) == 8);
MOIRA_ABI_ASSERT(sizeof(moira_buffer) == 16);
MOIRA_ABI_ASSERT(offsetof(moira_buffer, shape) == 8);
MOIRA_ABI_ASSERT(sizeof(moira_param) == 16);
MOIRA_ABI_ASSERT(offsetof(moira_param, bytes) == 8);
MOIRA_ABI_ASSERT(sizeof(moira_plan) == 24);
MOIRA_ABI_ASSERT(offsetof(moira_plan, degree) == 4);
MOIRA_ABI_ASSERT(offsetof(moira_plan, exchange) == 8);
MOIRA_ABI_ASSERT(offsetof(moira_plan, slots) == 12);
MOIRA_ABI_ASSERT(offsetof(moira_plan, slot_table) == 16);
MOIRA_ABI_ASSERT(sizeof(moira_placement) == 16);
MOIRA_ABI_ASSERT(offsetof(moira_placement, shards) == 4);
MOIRA_ABI_ASSERT(offsetof(moira_placement, copies) == 8);
MOIRA_ABI_ASSERT(offsetof(moira_placement, slots) == 12);
MOIRA_ABI_ASSERT(sizeof(moira_exchange) == 88);
MOIRA_ABI_ASSERT(offsetof(moira_exchange, placement) == 8);
MOIRA_ABI_ASSERT(offsetof(moira_exchange, direction) == 24);
MOIRA_ABI_ASSERT(offsetof(moira_exchange, schedule) == 28);
MOIRA_ABI_ASSERT(offsetof(moira_exchange, chunk) == 32);
MOIRA_ABI_ASSERT(offsetof(moira_exchange, chunks) == 40);
MOIRA_ABI_ASSERT(offsetof(moira_exchange, counts) == 48);
MOIRA_ABI_ASSERT(offsetof(moira_exchange, home) == 56);
MOIRA_ABI_ASSERT(offsetof(moira_exchange, home_rows) == 64);
MOIRA_ABI_ASSERT(offsetof(moira_exchange, away) == 72);
MOIRA_ABI_ASSERT(offsetof(moira_exchange, row_bytes) == 80);
MOIRA_ABI_ASSERT(sizeof(moira_gather) == 56);
MOIRA_ABI_ASSERT(offsetof(moira_gather, placement) == 8);
MOIRA_ABI_ASSERT(offsetof(moira_gather, parameter) == 24);
MOIRA_ABI_ASSERT(offsetof(moira_gather, replicated) == 28);
MOIRA_ABI_ASSERT(offsetof(moira_gather, local) == 32);
MOIRA_ABI_ASSERT(offsetof(moira_gather, whole) == 40);
MOIRA_ABI_ASSERT(offsetof(moira_gather, bytes) == 48);
MOIRA_ABI_ASSERT(sizeof(moira_reduce) == 64);
MOIRA_ABI_ASSERT(offsetof(moira_reduce, placement) == 8);
MOIRA_ABI_ASSERT(offsetof(moira_reduce, parameter) == 24);
MOIRA_ABI_ASSERT(offsetof(moira_reduce, replicated) == 28);
MOIRA_ABI_ASSERT(offsetof(moira_reduce, whole) == 32);
MOIRA_ABI_ASSERT(offsetof(moira_reduce, local) == 40);
MOIRA_ABI_ASSERT(offsetof(moira_reduce, count) == 48);
MOIRA_ABI_ASSERT(offsetof(moira_reduce, dtype) == 56);
MOIRA_ABI_ASSERT(sizeof(moira_api) == 152);
MOIRA_ABI_ASSERT(offsetof(moira_api, all_reduce) == 128);
MOIRA_ABI_ASSERT(offsetof(moira_api, reduce_weights) == 136);
MOIRA_ABI_ASSERT(offsetof(moira_api, merge_rows) == 144);
MOIRA_ABI_ASSERT(offsetof(moira_api, chunks) == 72);
MOIRA_ABI_ASSERT(offsetof(moira_api, all_gather) == 80);
MOIRA_ABI_ASSERT(offsetof(moira_api, gather_counts) == 88);
MOIRA_ABI_ASSERT(offsetof(moira_api, receive_sizes) == 96);
MOIRA_ABI_ASSERT(offsetof(moira_api, exchange) == 104);
MOIRA_ABI_ASSERT(offsetof(moira_api, gather_weights) == 112);
MOIRA_ABI_ASSERT(offsetof(moira_api, wait) == 120);
MOIRA_ABI_ASSERT(offsetof(moira_api, alloc) == 8);
MOIRA_ABI_ASSERT(offsetof(moira_api, mark) == 16);
MOIRA_ABI_ASSERT(offsetof(moira_api, release) == 24);
MOIRA_ABI_ASSERT(offsetof(moira_api, result) == 32);
MOIRA_ABI_ASSERT(offsetof(moira_api, parallel_for) == 40);
MOIRA_ABI_ASSERT(offsetof(moira_api, fail) == 48);
MOIRA_ABI_ASSERT(offsetof(moira_api, enter) == 56);
MOIRA_ABI_ASSERT(offsetof(moira_api, loads) == 64);
MOIRA_ABI_ASSERT(sizeof(struct moira_ctx) == 72);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, api) == 8);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, error) == 16);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, rank) == 20);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, ranks) == 24);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, workers) == 28);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, plan) == 32);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, params) == 40);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, communicator) == 48);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, queues) == 56);
MOIRA_ABI_ASSERT(offsetof(struct moira_ctx, session) == 64);
#undef MOIRA_ABI_ASSERT

#endif /* MOIRA_ABI_LAYOUT_H */
