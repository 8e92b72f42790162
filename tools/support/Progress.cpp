// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "support/Progress.h"

#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

using namespace moira::tools;
using std::chrono::steady_clock;

/// Work that takes less than this shows no bar.
static constexpr std::chrono::milliseconds patience(300);
static constexpr std::chrono::milliseconds interval(100);
static constexpr int64_t barWidth = 30;

Progress::Progress()
    : isTerminal(llvm::sys::Process::StandardErrIsDisplayed()) {}

void Progress::start(llvm::StringRef newLabel) {
  finish();
  label = newLabel.str();
  started = steady_clock::now();
  drawn = {};
}

void Progress::update(int64_t done, int64_t all) {
  steady_clock::time_point now = steady_clock::now();
  if (!isTerminal || now - started < patience || now - drawn < interval ||
      all <= 0)
    return;
  drawn = now;
  double share = static_cast<double>(done) / static_cast<double>(all);
  auto filled = static_cast<int64_t>(share * barWidth);
  draw(label + " [" + std::string(filled, '#') +
       std::string(barWidth - filled, ' ') + "] " +
       std::to_string(static_cast<int>(share * 100)) + " %");
}

void Progress::draw(const std::string &line) {
  // Back to the first column, and clear what was there.
  llvm::errs() << "\r\033[K" << line;
  llvm::errs().flush();
  visible = true;
}

void Progress::finish() {
  if (visible)
    llvm::errs() << "\r\033[K";
  visible = false;
}
