/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * A program as the compiler would make one, written by hand: a layer with two
 * experts of 4x4 weights, where row r goes to expert r % 2, and a bias. The
 * tests link it, and put it into bundles as a shared object of its own.
 */
#include "TestModule.h"

enum { FEATURES = 4, EXPERTS = 2 };

/* y[r] = bias + x[r] * weight[r % 2], one chain per element. */
static void computeRow(moira_ctx *ctx, const float *x, float *y, int64_t r) {
  const float *weight =
      (const float *)ctx->params[0].data + (r % EXPERTS) * FEATURES * FEATURES;
  const float *bias = (const float *)ctx->params[1].data;
  for (int64_t n = 0; n < FEATURES; ++n) {
    float sum = bias[n];
    for (int64_t k = 0; k < FEATURES; ++k) /* packed: [k][n] */
      sum += x[r * FEATURES + k] * weight[k * FEATURES + n];
    y[r * FEATURES + n] = sum;
  }
}

/* Routes, with the bookkeeping that generated code does. */
static float *begin(moira_ctx *ctx, const moira_buffer *inputs) {
  ctx->api->enter(ctx, TEST_LAYER, MOIRA_PART_GATE);
  int64_t rows = inputs[0].shape[0];
  int32_t *counts = ctx->api->alloc(ctx, 0, EXPERTS * sizeof(int32_t));
  if (!counts)
    return 0;
  counts[0] = (int32_t)((rows + 1) / 2);
  counts[1] = (int32_t)(rows / 2);
  ctx->api->loads(ctx, TEST_LAYER, EXPERTS, counts, counts);
  ctx->api->enter(ctx, TEST_LAYER, MOIRA_PART_EXPERT);
  int64_t shape[2] = {rows, FEATURES};
  return ctx->api->result(ctx, 0, 2, shape);
}

void moira_step_main_decode(moira_ctx *ctx, const moira_buffer *inputs) {
  float *y = begin(ctx, inputs);
  if (!y)
    return;
  for (int64_t r = 0; r < inputs[0].shape[0]; ++r)
    computeRow(ctx, inputs[0].data, y, r);
}

struct Captures {
  const float *x;
  float *y;
};

static void rowBody(moira_ctx *ctx, void *captures, int64_t r, int64_t worker) {
  struct Captures *c = captures;
  int64_t mark = ctx->api->mark(ctx, worker);
  float *copy = ctx->api->alloc(ctx, worker, FEATURES * sizeof(float));
  if (!copy)
    return;
  for (int64_t k = 0; k < FEATURES; ++k)
    copy[k] = c->x[r * FEATURES + k];
  computeRow(ctx, copy - r * FEATURES, c->y, r);
  ctx->api->release(ctx, worker, mark);
}

void moira_step_main_prefill(moira_ctx *ctx, const moira_buffer *inputs) {
  float *y = begin(ctx, inputs);
  if (!y)
    return;
  struct Captures captures = {inputs[0].data, y};
  ctx->api->parallel_for(ctx, rowBody, &captures, inputs[0].shape[0], 10000);
}

int64_t moira_workspace_main(moira_ctx *ctx, const moira_buffer *inputs) {
  (void)ctx;
  (void)inputs;
  return 64;
}

/* [n][k] -> [k][n] */
void moira_pack_weight(moira_ctx *ctx, const void *source, void *packed) {
  (void)ctx;
  const float *from = source;
  float *to = packed;
  for (int64_t n = 0; n < FEATURES; ++n)
    for (int64_t k = 0; k < FEATURES; ++k)
      to[k * FEATURES + n] = from[n * FEATURES + k];
}

void moira_pack_bias(moira_ctx *ctx, const void *source, void *packed) {
  (void)ctx;
  for (int64_t n = 0; n < FEATURES; ++n)
    ((float *)packed)[n] = ((const float *)source)[n];
}
