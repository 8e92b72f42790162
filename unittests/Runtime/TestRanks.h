/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The entries of TestRanks.c.
 */
#ifndef MOIRA_UNITTESTS_RUNTIME_TESTRANKS_H
#define MOIRA_UNITTESTS_RUNTIME_TESTRANKS_H

#include "moira/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TEST_RANKS = 2, TEST_EXPERTS = 4, TEST_SLOTS = 3, TEST_FEATURES = 4 };

void moira_step_ranks(moira_ctx *ctx, const moira_buffer *inputs);
void moira_step_ranks_groups(moira_ctx *ctx, const moira_buffer *inputs);
int64_t moira_workspace_ranks(moira_ctx *ctx, const moira_buffer *inputs);
void moira_pack_scale(moira_ctx *ctx, const void *source, void *packed);

#ifdef __cplusplus
}
#endif

#endif /* MOIRA_UNITTESTS_RUNTIME_TESTRANKS_H */
