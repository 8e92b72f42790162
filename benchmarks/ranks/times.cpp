// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// usage: scripts/mpirun 2 build/bin/moira-rank-times
//        MOIRA_TRANSPORT=tcp scripts/mpirun 4 build/bin/moira-rank-times
//
// Times batches of a transport: an exchange of all ranks with all, by bytes per
// pair. One line per size: median and least over the repetitions, and the bytes
// that a rank sends per second. The slowest rank counts.

#include "collective/Connect.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

using namespace moira;
using namespace moira::runtime;

static void check(const Status &status) {
  if (status.ok())
    return;
  fprintf(stderr, "moira-rank-times: %s\n", status.message.c_str());
  exit(1);
}

static void complete(Transport &transport, const Batch &batch) {
  check(transport.post(batch));
  for (;;) {
    Result<bool> done = transport.test();
    check(done.status());
    if (*done)
      return;
    transport.idle();
  }
}

/// All with all; `out` and `in` hold `bytes` for each rank.
static Batch exchange(const Transport &transport, char *out, char *in,
                      int64_t bytes) {
  Batch batch;
  for (int step = 1; step < transport.ranks(); ++step) {
    int to = (transport.rank() + step) % transport.ranks();
    int from =
        (transport.rank() + transport.ranks() - step) % transport.ranks();
    batch.sends.push_back({to, out + to * bytes, bytes});
    batch.receives.push_back({from, in + from * bytes, bytes});
  }
  return batch;
}

/// The largest of all ranks' numbers.
static double largest(Transport &transport, double mine) {
  std::vector<double> out(transport.ranks(), mine), in(transport.ranks(), mine);
  complete(transport,
           exchange(transport, reinterpret_cast<char *>(out.data()),
                    reinterpret_cast<char *>(in.data()), sizeof(double)));
  return *std::max_element(in.begin(), in.end());
}

static void measure(Transport &transport, int64_t bytes) {
  using Clock = std::chrono::steady_clock;
  std::vector<char> out(bytes * transport.ranks()), in(out.size());
  const Batch batch = exchange(transport, out.data(), in.data(), bytes);
  const int repetitions = bytes < (1 << 16) ? 400 : bytes < (1 << 20) ? 60 : 12;
  std::vector<double> times;
  for (int i = -2; i < repetitions; ++i) {
    largest(transport, 0); // all are here
    Clock::time_point begin = Clock::now();
    complete(transport, batch);
    double seconds =
        std::chrono::duration<double>(Clock::now() - begin).count();
    seconds = largest(transport, seconds);
    if (i >= 0)
      times.push_back(seconds);
  }
  std::sort(times.begin(), times.end());
  double median = times[times.size() / 2];
  if (transport.rank() == 0)
    printf("%-5s %d ranks %9lld B per pair %10.1f us (least %.1f) %8.3f GB/s\n",
           transport.name(), transport.ranks(), static_cast<long long>(bytes),
           median * 1e6, times[0] * 1e6,
           static_cast<double>(bytes * (transport.ranks() - 1)) / median / 1e9);
}

int main() {
  Result<Environment> environment = Environment::read();
  check(environment.status());
  Result<std::unique_ptr<Transport>> transport = connectRanks(*environment);
  check(transport.status());
  for (int64_t bytes : {8, 4096, 32768, 524288, 4 << 20})
    measure(**transport, bytes);
  return 0;
}
