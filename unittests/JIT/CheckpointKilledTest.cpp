// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A process that is killed while it saves: before each call that changes the
// folder, and halfway through each write. The linker puts the functions below
// in front of the C library's (--wrap), so that every moment is tried once,
// whatever the machine does.

#include "JIT/TrainingRanks.h"

#include <csignal>
#include <cstdarg>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
/// Calls until the process dies; negative: it does not.
int callsLeft = -1;
/// Whether a write that it dies in has written half of its bytes.
bool tearsWrites = false;

/// Whether this call is the last one.
bool isLast() { return callsLeft >= 0 && callsLeft-- == 0; }

[[noreturn]] void die() {
  raise(SIGKILL);
  _exit(1); // not reached
}
} // namespace

extern "C" {
int __real_open(const char *path, int flags, ...);
ssize_t __real_write(int fd, const void *data, size_t bytes);
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);

int __wrap_open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
  va_end(rest);
  if ((flags & O_CREAT) && isLast())
    die();
  return __real_open(path, flags, mode);
}

ssize_t __wrap_write(int fd, const void *data, size_t bytes) {
  if (isLast()) {
    if (tearsWrites)
      (void)!__real_write(fd, data, bytes / 2);
    die();
  }
  return __real_write(fd, data, bytes);
}

int __wrap_fsync(int fd) {
  if (isLast())
    die();
  return __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to) {
  if (isLast())
    die();
  return __real_rename(from, to);
}

int __wrap_unlink(const char *path) {
  if (isLast())
    die();
  return __real_unlink(path);
}
}

namespace {

/// Two states of one program: its checkpoint of step 7 stands in a folder, and
/// that of step 8 is saved over it.
struct Killed : testing::TestWithParam<std::tuple<bool, bool>> {
  Killed() {
    for (auto *session : {&first, &second}) {
      *session = makeSession(program);
      EXPECT_OK((*session)->bindRandom(3));
      train(**session, 1);
    }
    train(*second, 2);
    EXPECT_OK(first->saveCheckpoint(folder.name(), {7, 3, "", 0}, isSharded));
    before = tensorsOf(folder.name());
    Folder other;
    EXPECT_OK(second->saveCheckpoint(other.name(), {8, 3, "", 0}, isSharded));
    after = tensorsOf(other.name());
  }

  static void train(Session &session, int seed) {
    std::vector<float> x = numbers(5 * 8, seed), dy = numbers(5 * 6, seed + 1);
    std::vector<ResultTensor> results, ofInputs;
    std::shared_ptr<const Residuals> handle;
    ASSERT_OK(session.forward("main", {view(x, {5, 8})}, results, handle));
    session.zeroGradients();
    ASSERT_OK(session.accumulate(*handle, {view(dy, {5, 6})}, ofInputs));
    UpdateOptions options;
    options.learningRate = 0.01;
    ASSERT_OK(session.update(options));
  }

  /// Saves step 8 in a process that dies at call `last`. Returns whether it
  /// died.
  bool saveAndDie(int last) {
    pid_t child = fork();
    if (child == 0) {
      callsLeft = last;
      tearsWrites = std::get<1>(GetParam());
      Status status =
          second->saveCheckpoint(folder.name(), {8, 3, "", 0}, isSharded);
      _exit(status.ok() ? 0 : 2);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
      EXPECT_EQ(WTERMSIG(status), SIGKILL);
      return true;
    }
    EXPECT_EQ(WEXITSTATUS(status), 0) << "expected a checkpoint, saved";
    return false;
  }

  bool isSharded = std::get<0>(GetParam());
  std::shared_ptr<const Program> program =
      compileProgram(linearProgram("f32"), withOptimizers());
  std::unique_ptr<Session> first, second;
  Folder folder;
  std::map<std::string, std::string> before, after;
};

TEST_P(Killed, TheLastWholeCheckpointLoads) {
  ASSERT_FALSE(before == after);
  ASSERT_EQ(before.size(), 6u); // w and b, with two states each
  int64_t step = 7;
  int calls = 0, killedWithOld = 0, killedWithNew = 0;
  for (bool died = true; died; ++calls) {
    SCOPED_TRACE(testing::Message() << "killed at call " << calls);
    ASSERT_LT(calls, 1000) << "expected a save that ends";
    died = saveAndDie(calls);
    auto loaded = makeSession(program);
    auto state = loaded->restoreCheckpoint(folder.name());
    ASSERT_OK(state.status());
    // Once the new one is there it stays.
    ASSERT_TRUE(state->step == step || state->step == 8) << state->step;
    step = state->step;
    ASSERT_TRUE(tensorsOf(folder.name()) == (step == 8 ? after : before));
    if (died)
      ++(step == 8 ? killedWithNew : killedWithOld);
  }
  EXPECT_EQ(step, 8);
  // A file to open, a header and six tensors to write, to sync and to rename;
  // an index; then the folder to sync and the old file to remove.
  EXPECT_GE(killedWithOld, 13);
  EXPECT_GE(killedWithNew, 2);
  // Nothing of the killed ones is left.
  EXPECT_EQ(folder.files().size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Files, Killed,
                         testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param)
                                                  ? "sharded"
                                                  : "one") +
                                  (std::get<1>(info.param) ? "Torn" : "");
                         });

} // namespace
