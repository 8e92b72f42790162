/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The entries of TestModule.c.
 */
#ifndef MOIRA_UNITTESTS_RUNTIME_TESTMODULE_H
#define MOIRA_UNITTESTS_RUNTIME_TESTMODULE_H

#include "moira/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Not 0, so that an index is not mistaken for a place in a list. */
enum { TEST_LAYER = 3 };

void moira_step_main_decode(moira_ctx *ctx, const moira_buffer *inputs);
void moira_step_main_prefill(moira_ctx *ctx, const moira_buffer *inputs);
int64_t moira_workspace_main(moira_ctx *ctx, const moira_buffer *inputs);
void moira_pack_weight(moira_ctx *ctx, const void *source, void *packed);
void moira_pack_bias(moira_ctx *ctx, const void *source, void *packed);

#ifdef __cplusplus
}
#endif

#endif /* MOIRA_UNITTESTS_RUNTIME_TESTMODULE_H */
