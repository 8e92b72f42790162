// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Textbook kernels in CUDA C++, for the emulated device by way of clang:
// generate.py makes cuda.ll of them. No header of CUDA is needed.

#define GLOBAL extern "C" __attribute__((global))
#define DEVICE static inline __attribute__((device))
#define SHARED __attribute__((shared))
#define FULL 0xffffffffu

DEVICE int thread() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE int block() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE int threads() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE int blocks() { return __nvvm_read_ptx_sreg_nctaid_x(); }

/// c = a + b, n elements.
GLOBAL void vector_add(const float *a, const float *b, float *c, int n) {
  for (int i = block() * threads() + thread(); i < n;
       i += blocks() * threads())
    c[i] = a[i] + b[i];
}

DEVICE float warp_sum(float x) {
  for (int d = 16; d > 0; d /= 2)
    x += __nvvm_shfl_sync_bfly_f32(FULL, x, d, 31);
  return x;
}

/// out[block] = the sum of row `block` of a [rows, n]: shuffles, then shared
/// memory.
GLOBAL void row_sum(const float *a, float *out, int n) {
  SHARED static float part[32];
  float sum = 0;
  for (int i = thread(); i < n; i += threads())
    sum += a[block() * n + i];
  sum = warp_sum(sum);
  if (thread() % 32 == 0)
    part[thread() / 32] = sum;
  __syncthreads();
  if (thread() < 32) {
    sum = warp_sum(thread() < threads() / 32 ? part[thread()] : 0.0f);
    if (thread() == 0)
      out[block()] = sum;
  }
}

/// counts [64] += how often a number stands in a: atomics in shared memory,
/// then in global memory.
GLOBAL void histogram(const int *a, int *counts, int n) {
  SHARED static int own[64];
  if (thread() < 64)
    own[thread()] = 0;
  __syncthreads();
  for (int i = block() * threads() + thread(); i < n;
       i += blocks() * threads())
    __nvvm_atom_add_gen_i(&own[a[i] & 63], 1);
  __syncthreads();
  if (thread() < 64)
    __nvvm_atom_add_gen_i(&counts[thread()], own[thread()]);
}

/// How many elements of a [32 * warps] before one's own are above 0, within
/// its warp: votes.
GLOBAL void ranks(const float *a, int *out) {
  int i = block() * threads() + thread();
  unsigned mask = __nvvm_vote_ballot_sync(FULL, a[i] > 0);
  out[i] = __builtin_popcount(mask & ((1u << thread() % 32) - 1));
}

/// c [n, n] = a b in tiles of 16 x 16 in shared memory; n a multiple of 16.
GLOBAL void tiled_matmul(const float *a, const float *b, float *c, int n) {
  SHARED static float left[16][16], right[16][17];
  int x = __nvvm_read_ptx_sreg_tid_x(), y = __nvvm_read_ptx_sreg_tid_y();
  int row = __nvvm_read_ptx_sreg_ctaid_y() * 16 + y, column = block() * 16 + x;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    left[y][x] = a[row * n + k + x];
    right[y][x] = b[(k + y) * n + column];
    __syncthreads();
    for (int i = 0; i < 16; ++i)
      sum = __builtin_fmaf(left[y][i], right[i][x], sum);
    __syncthreads();
  }
  c[row * n + column] = sum;
}

/// The same with a barrier missing: the race detector's turn.
GLOBAL void racing_matmul(const float *a, const float *b, float *c, int n) {
  SHARED static float left[16][16], right[16][17];
  int x = __nvvm_read_ptx_sreg_tid_x(), y = __nvvm_read_ptx_sreg_tid_y();
  int row = __nvvm_read_ptx_sreg_ctaid_y() * 16 + y, column = block() * 16 + x;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    left[y][x] = a[row * n + k + x];
    right[y][x] = b[(k + y) * n + column];
    __syncthreads();
    for (int i = 0; i < 16; ++i)
      sum = __builtin_fmaf(left[y][i], right[i][x], sum);
  }
  c[row * n + column] = sum;
}

/// out = 2 a, n elements, by a pipeline of three stages of asynchronous
/// copies of 16 bytes per thread; one block, n a multiple of 4 * threads.
GLOBAL void pipelined_copy(const float *a, float *out, int n) {
  SHARED static __attribute__((aligned(16))) float stage[3][128 * 4];
  int step = threads() * 4, steps = n / step;
  auto issue = [&](int s) {
    if (s < steps)
      __nvvm_cp_async_cg_shared_global_16(
          (__attribute__((address_space(3))) void *)&stage[s % 3][thread() * 4],
          (__attribute__((address_space(1))) const void *)&a[s * step + thread() * 4]);
    __nvvm_cp_async_commit_group();
  };
  issue(0);
  issue(1);
  for (int s = 0; s < steps; ++s) {
    __nvvm_cp_async_wait_group(1);
    __syncthreads();
    issue(s + 2);
    // Its neighbour's elements, so that the barrier counts.
    int other = (thread() + 1) % threads();
    for (int i = 0; i < 4; ++i)
      out[s * step + other * 4 + i] = 2 * stage[s % 3][other * 4 + i];
  }
}

/// d [16, 8] = a [16, 16] b [16, 8], a and b bf16, b stored by columns: one
/// product of a warp, in inline PTX.
GLOBAL void one_mma(const unsigned *a, const unsigned *b, float *d) {
  int lane = thread(), group = lane / 4, pair = lane % 4;
  unsigned a0 = a[group * 8 + pair], a1 = a[(group + 8) * 8 + pair],
           a2 = a[group * 8 + pair + 4], a3 = a[(group + 8) * 8 + pair + 4],
           b0 = b[group * 8 + pair], b1 = b[group * 8 + pair + 4];
  float d0, d1, d2, d3;
  asm volatile(
      "{\n"
      ".reg .f32 z;\n"
      "mov.f32 z, 0f00000000;\n"
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {z, z, z, z};\n"
      "}"
      : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  d[group * 8 + 2 * pair] = d0;
  d[group * 8 + 2 * pair + 1] = d1;
  d[(group + 8) * 8 + 2 * pair] = d2;
  d[(group + 8) * 8 + 2 * pair + 1] = d3;
}
