/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * A program for two ranks as the compiler would make one, written by hand: a
 * layer with four experts that scale rows, and a spare slot for weights on each
 * rank. Row t of each rank goes to expert t % 4: y[t] = x[t] * weight[t % 4].
 */
#include "TestRanks.h"

#include <string.h>

enum { SLOTS = TEST_SLOTS, ROW_BYTES = TEST_FEATURES * sizeof(float) };

/* Rows in the order of their experts, or back. */
static void permute(float *sorted, float *rows, int64_t count, int back) {
  for (int e = 0; e < TEST_EXPERTS; ++e)
    for (int64_t t = e; t < count; t += TEST_EXPERTS, sorted += TEST_FEATURES)
      if (back)
        memcpy(rows + t * TEST_FEATURES, sorted, ROW_BYTES);
      else
        memcpy(sorted, rows + t * TEST_FEATURES, ROW_BYTES);
}

static void scale(float *rows, const int32_t *groups, const float *weights) {
  for (int slot = 0; slot < SLOTS; ++slot)
    for (int32_t i = 0; i < groups[slot]; ++i)
      for (int k = 0; k < TEST_FEATURES; ++k)
        *rows++ *= weights[slot * TEST_FEATURES + k];
}

static void step(moira_ctx *ctx, const moira_buffer *inputs, int32_t schedule) {
  const moira_api *api = ctx->api;
  int64_t rows = inputs[0].shape[0];
  int32_t counts[TEST_EXPERTS], matrix[TEST_RANKS * TEST_EXPERTS];
  for (int e = 0; e < TEST_EXPERTS; ++e)
    counts[e] = (int32_t)((rows + TEST_EXPERTS - 1 - e) / TEST_EXPERTS);
  api->loads(ctx, 0, TEST_EXPERTS, counts, counts);
  api->gather_counts(ctx, 0, TEST_EXPERTS, counts, matrix);
  float *home = api->alloc(ctx, 0, rows * ROW_BYTES);
  int64_t shape[2] = {rows, TEST_FEATURES};
  float *y = api->result(ctx, 0, 2, shape);
  if (!home || !y)
    return;
  permute(home, inputs[0].data, rows, 0);

  moira_exchange exchange;
  memset(&exchange, 0, sizeof(exchange));
  exchange.placement.experts = TEST_EXPERTS;
  exchange.placement.copies = 1;
  exchange.placement.shards = 1;
  exchange.placement.slots = SLOTS;
  exchange.schedule = schedule;
  exchange.chunks = api->chunks(ctx, 0, schedule);
  exchange.counts = matrix;
  exchange.home = home;
  exchange.home_rows = rows;
  exchange.row_bytes = ROW_BYTES;
  for (; exchange.chunk < exchange.chunks; ++exchange.chunk) {
    int32_t groups[SLOTS];
    exchange.direction = MOIRA_TO_EXPERTS;
    int64_t arriving = api->receive_sizes(ctx, &exchange, groups);
    exchange.away = api->alloc(ctx, 0, arriving * ROW_BYTES);
    if (!exchange.away)
      return;
    api->wait(ctx, api->exchange(ctx, &exchange));
    scale(exchange.away, groups, ctx->params[0].data);
    exchange.direction = MOIRA_TO_TOKENS;
    api->wait(ctx, api->exchange(ctx, &exchange));
  }
  permute(home, y, rows, 1);
}

void moira_step_ranks(moira_ctx *ctx, const moira_buffer *inputs) {
  step(ctx, inputs, MOIRA_SCHEDULE_EQUAL);
}

void moira_step_ranks_groups(moira_ctx *ctx, const moira_buffer *inputs) {
  step(ctx, inputs, MOIRA_SCHEDULE_GROUPS);
}

int64_t moira_workspace_ranks(moira_ctx *ctx, const moira_buffer *inputs) {
  (void)ctx;
  (void)inputs;
  return -1;
}

void moira_pack_scale(moira_ctx *ctx, const void *source, void *packed) {
  (void)ctx;
  memcpy(packed, source, ROW_BYTES);
}
