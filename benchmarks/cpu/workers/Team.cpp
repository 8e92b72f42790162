// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Team.h"

using namespace moira::bench;

/// Turns of a waiting thread before it sleeps: some 100 us, so that the phases
/// of one call follow each other without a wake-up.
static constexpr int spins = 4000;

Team::Team(int threads) {
  for (int i = 1; i < threads; ++i)
    others.emplace_back([this, i] { serve(i); });
}

Team::~Team() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    ending = true;
    ++generation;
  }
  wake.notify_all();
  for (std::thread &thread : others)
    thread.join();
}

void Team::serve(int thread) {
  uint64_t seen = 0;
  while (true) {
    for (int i = 0; i < spins && generation == seen; ++i)
      __builtin_ia32_pause();
    if (generation == seen) {
      std::unique_lock<std::mutex> lock(mutex);
      wake.wait(lock, [&] { return generation != seen; });
    }
    seen = generation;
    if (ending)
      return;
    (*current)(thread);
    --pending;
  }
}

void Team::each(const std::function<void(int)> &work) {
  if (others.empty())
    return work(0);
  {
    std::lock_guard<std::mutex> lock(mutex);
    current = &work;
    pending = static_cast<int>(others.size());
    ++generation;
  }
  wake.notify_all();
  work(0);
  while (pending != 0)
    __builtin_ia32_pause();
}

void Team::items(int64_t count, const std::function<void(int64_t, int)> &work) {
  std::atomic<int64_t> next{0};
  each([&](int thread) {
    for (int64_t i = next++; i < count; i = next++)
      work(i, thread);
  });
}
