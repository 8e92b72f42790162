// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One block of a grid while it runs: its threads as fibres, its shared memory,
// its barriers, and the engines that copy and multiply by themselves.

#ifndef MOIRA_RUNTIME_EMULATOR_MACHINE_H
#define MOIRA_RUNTIME_EMULATOR_MACHINE_H

#include "emulator/AccessCounter.h"
#include "emulator/Emulator.h"
#include "emulator/Fibre.h"
#include "emulator/Shadow.h"

#include <deque>
#include <set>
#include <unordered_map>

namespace moira::emulator {

/// A callable that outlives its call; owns nothing, unlike std::function: the
/// stacks it stands on may be left for good.
template <typename Argument> class Action {
public:
  template <typename Callable>
  Action(Callable &&callable)
      : object(const_cast<void *>(static_cast<const void *>(&callable))),
        invoke([](void *object, Argument argument) {
          (*static_cast<std::remove_reference_t<Callable> *>(object))(argument);
        }) {}
  void operator()(Argument argument) const { invoke(object, argument); }

private:
  void *object;
  void (*invoke)(void *, Argument);
};

/// What all blocks of a launch share.
struct LaunchPlan {
  const moira_emu_module *module = nullptr;
  const moira_emu_kernel *kernel = nullptr;
  Extent grid, block;
  int64_t sharedBytes = 0;
  void **arguments = nullptr;
  const Regions *regions = nullptr;
  LaunchOptions options;
  GlobalShadow *globalShadow = nullptr; ///< null: races are not looked for
};

/// A copy of the cp.async engine that has not been done yet.
struct PendingCopy {
  char *to;
  const char *from;
  int32_t size, bytes;
  uint32_t group;
};

/// A bulk store that its thread may still have to wait for.
struct BulkMark {
  int slot;
  uint32_t clock, group;
};

struct GpuThread {
  bool done = false;
  const char *waitsFor = nullptr;
  int32_t site = -1; ///< where it waits
  Knowledge known;
  std::deque<PendingCopy> copies;
  uint32_t copyGroups = 0; ///< committed
  uint32_t bulkGroups = 0; ///< committed
  std::vector<BulkMark> stores;
};

/// Threads that have come to a collective, until all have.
struct Gathering {
  uint32_t mask = 0;
  uint64_t tag = 0;
  int32_t site = -1;
  int arrived = 0;
  std::vector<int> members; ///< thread per lane, -1 before it came
  std::vector<void *> arguments;
};

struct NamedBarrier {
  int arrived = 0, expected = 0;
  int32_t site = -1;
  std::vector<int> waiting;
  Knowledge gathered;
};

struct MBarrier {
  int64_t expected = 0, pending = 0, bytes = 0;
  uint32_t phase = 0;
  bool fenced = false; ///< its initialisation is visible to engines
  int initThread = -1;
  std::vector<int> waiting;
  Knowledge gathered, completed;
};

/// A bulk copy under way.
struct BulkCopy {
  TensorMap map;
  bool isStore = false;
  char *shared = nullptr;
  int64_t mbarrier = -1; ///< offset; loads
  int32_t coordinates[5] = {};
  int slot = 0;
  int thread = -1;
  uint32_t group = 0; ///< stores
  int32_t site = -1;
  Knowledge known;
};

struct WarpGroup {
  uint32_t clock = 1; ///< of the open group
  bool open = false;  ///< the open group has products
  std::deque<uint32_t> groups;
  bool fenced = false;
  std::set<uint64_t> produced; ///< hashes of accumulators since the last fence
};

class Machine {
public:
  Machine();
  ~Machine();

  /// Runs one block to its end, or to a fault with which nothing can go on.
  Status run(const LaunchPlan &plan, Extent index, LaunchReport &report);
  /// Whether the last block ended before its threads did.
  bool hasStopped() const { return stopped || live > 0; }
  /// The machine that runs on this system thread.
  static Machine &current();

  // Scheduling (Machine.cpp).
  int self() const { return fibres->running(); }
  int lane() const { return self() & 31; }
  GpuThread &thread() { return threads[self()]; }
  void block(const char *reason, int32_t site);
  void wake(int thread);
  /// Lets others run where the order is random.
  void yield();
  /// Ends the block. Nothing on the fibres' stacks is destroyed.
  [[noreturn]] void stop();

  // Faults (Faults.cpp).
  void report(FaultKind kind, int32_t site, int32_t other,
              const std::string &text);
  /// Reports `pieces`, one after the other, and ends the block. The pieces must
  /// own no memory: the caller's stack is never unwound.
  template <typename... Pieces>
  [[noreturn]] void fail(int32_t site, const Pieces &...pieces) {
    reportFailure(site, pieces...);
    stop();
  }
  std::string describeActor(int32_t actor) const;
  const char *siteText(int32_t site) const;
  std::string here(int32_t site) const; ///< "thread 3 at FILE:LINE: op"

  // Memory (Memory.cpp).
  bool inShared(const void *at) const;
  int64_t sharedOffset(const void *at) const {
    return static_cast<const char *>(at) - shared;
  }
  void access(void *at, int64_t bytes, int32_t space, AccessKind kind,
              int32_t site, const void *value = nullptr);
  /// One of shared memory; knowledge and actor as given.
  void accessShared(int64_t offset, int64_t bytes, const Access &access);
  void accessGlobal(const void *at, int64_t bytes, const Access &access);
  Access makeAccess(AccessKind kind, int32_t site);
  bool races() const { return plan->globalShadow != nullptr; }
  const Checks &checks() const { return plan->options.checks; }
  /// Whether [offset, offset + bytes) is the launch's; reports if not.
  bool checkShared(int64_t offset, int64_t bytes, int32_t site,
                   const char *what);
  /// Fails unless `at` is a multiple of `alignment`.
  void checkAlignment(const void *at, int64_t alignment, int32_t site);

  // Collectives (Collectives.cpp).
  Gathering &gatheringOf(std::deque<Gathering> &list, uint32_t mask, int lanes);
  /// Waits until the lanes of `mask` of this warp have come with `argument`;
  /// the last of them calls action(arguments by lane, threads by lane).
  void collect(uint32_t mask, uint64_t tag, int32_t site, void *argument,
               Action<Gathering &> action);
  /// The same for all threads of this warpgroup.
  void collectGroup(uint64_t tag, int32_t site, void *argument,
                    Action<Gathering &> action);

  // Barriers (Barriers.cpp).
  void barrier(int32_t id, int32_t count, bool waits, int32_t site);
  /// Lets all that wait go on, and begins anew.
  void openBarrier(NamedBarrier &barrier);
  MBarrier &mbarrier(void *at, int32_t site);
  void completePhase(MBarrier &barrier);
  int64_t arrive(void *at, int64_t count, int64_t bytes, int32_t site);
  void release(MBarrier &barrier);

  // Copies (Copies.cpp).
  void flushCopies(GpuThread &thread, uint32_t before);
  void startBulk(const BulkCopy &start);
  bool finishBulk(size_t index);
  /// Finishes one bulk copy; false when there is none.
  bool stepEngines();
  int copyEngine(int thread) const { return threadCount + thread; }
  int matrixEngine(int group) const { return 2 * threadCount + group; }
  int bulkEngine(int slot) const {
    return 2 * threadCount + int(groups.size()) + slot;
  }

  const LaunchPlan *plan = nullptr;
  Extent index; ///< of the block
  int32_t blockNumber = 0;
  int threadCount = 0, live = 0;
  std::vector<GpuThread> threads;
  /// Places of gatherings hold while threads wait in them.
  std::vector<std::deque<Gathering>> warps, groupGatherings;
  std::vector<WarpGroup> groups;
  std::vector<NamedBarrier> barriers;
  std::unordered_map<int64_t, MBarrier> mbarriers;
  std::vector<BulkCopy> bulk;
  std::vector<uint32_t> slotClocks;
  int nextSlot = 0;
  char *shared = nullptr;
  SharedShadow shadow;
  Knowledge matrixKnowledge;
  std::vector<float> matrixScratch;
  Counters counters;
  AccessCounter accesses;
  uint64_t random();

private:
  template <typename... Pieces>
  __attribute__((noinline)) void reportFailure(int32_t site,
                                               const Pieces &...pieces) {
    report(FaultKind::Sync, site, -1, here(site) + ": " + concat(pieces...));
  }
  Status prepare();
  void leave();
  [[noreturn]] static void beginThread(void *machine);
  void reportDeadlock();
  /// Checks an access outside shared memory against the allocations.
  void checkGlobal(const void *at, int64_t bytes, int32_t site,
                   const char *what);
  void reportConflict(const Conflict &conflict, const char *space,
                      int64_t offset, const Access &access);

  std::unique_ptr<FibreSet> fibres;
  std::vector<int> ready; ///< a ring
  size_t readyHead = 0, readyCount = 0;
  uint64_t randomState = 1;
  bool stopped = false;
  LaunchReport *findings = nullptr;
  Regions::Region lastRegion;
  std::unique_ptr<char[]> sharedStorage;
  int64_t sharedCapacity = 0;
};

/// Shared memory that nobody wrote, and what a copy will write later: NaN in
/// every type.
constexpr unsigned char poisonByte = 0xff;
/// What an initialised mbarrier looks like in memory.
constexpr uint64_t mbarrierMark = 0x6d6f6972616d6261;
constexpr int bulkSlots = 64;
constexpr int namedBarriers = 16;

} // namespace moira::emulator

#endif // MOIRA_RUNTIME_EMULATOR_MACHINE_H
