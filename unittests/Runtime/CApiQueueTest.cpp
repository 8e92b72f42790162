// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moira/queue.h as a deployment has it.

#include "Runtime/CApiTools.h"
#include "moira/queue.h"
#include "moira/ranks.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

using namespace moira::test;

namespace {

/// Something that work waits for.
struct Gate {
  void open() {
    std::lock_guard<std::mutex> lock(mutex);
    isOpen = true;
    changed.notify_all();
  }
  static int32_t pass(void *gate) {
    auto *self = static_cast<Gate *>(gate);
    std::unique_lock<std::mutex> lock(self->mutex);
    self->changed.wait(lock, [&] { return self->isOpen; });
    return MOIRA_OK;
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool isOpen = false;
};

/// Appends to a list that only the queue's work touches.
struct Note {
  std::vector<int> *list;
  int number;
  static int32_t write(void *note) {
    auto *self = static_cast<Note *>(note);
    self->list->push_back(self->number);
    return MOIRA_OK;
  }
};

int32_t fail(void *) {
  moira_bundle *bundle;
  return moira_bundle_open("no such file", &bundle);
}

struct CApiQueue : testing::Test {
  moira_bundle *bundle = nullptr;
  moira_session *session = nullptr;
  moira_queue *queue = nullptr;
  Floats x{{1, 0, 0, 0, 0, 0, 0, 1}, {2, 4}};

  void SetUp() override {
    ASSERT_CODE(moira_bundle_open(MOIRA_TEST_BUNDLE, &bundle), MOIRA_OK);
    ASSERT_CODE(moira_session_create(bundle, nullptr, &session), MOIRA_OK);
    ASSERT_CODE(moira_queue_create(nullptr, &queue), MOIRA_OK);
    std::vector<float> weights(32);
    for (int i = 0; i < 32; ++i)
      weights[i] = float(i);
    Floats weight(weights, {2, 4, 4});
    Floats bias({100, 200, 300, 400}, {4});
    ASSERT_CODE(moira_session_bind(session, "experts.{}.weight", weight.dl()),
                MOIRA_OK);
    ASSERT_CODE(moira_session_bind(session, "bias", bias.dl()), MOIRA_OK);
  }
  void TearDown() override {
    moira_queue_destroy(queue);
    moira_session_destroy(session);
    moira_bundle_close(bundle);
  }
  int32_t invoke(Floats &input, DLManagedTensor **result, int64_t *ticket) {
    const DLTensor *inputs[] = {input.dl()};
    return moira_queue_invoke(queue, session, "main", inputs, 1, result, 1,
                              ticket);
  }
};

constexpr float expected[] = {100, 204, 308, 412, 119, 223, 327, 431};

} // namespace

TEST_F(CApiQueue, RunsBesideTheCaller) {
  Gate gate;
  int64_t first = 0, second = 0;
  int32_t done = 7;
  DLManagedTensor *result = nullptr;
  ASSERT_CODE(moira_queue_call(queue, Gate::pass, &gate, &first), MOIRA_OK);
  ASSERT_CODE(invoke(x, &result, &second), MOIRA_OK);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
  // The caller is here and the step has not run.
  EXPECT_CODE(moira_queue_done(queue, second, &done), MOIRA_OK);
  EXPECT_EQ(done, 0);
  EXPECT_EQ(result, nullptr);
  gate.open();
  EXPECT_CODE(moira_queue_wait(queue, second), MOIRA_OK);
  EXPECT_CODE(moira_queue_done(queue, second, &done), MOIRA_OK);
  EXPECT_EQ(done, 1);
  ASSERT_NE(result, nullptr);
  EXPECT_EQ(std::memcmp(result->dl_tensor.data, expected, sizeof(expected)), 0);
  result->deleter(result);
  EXPECT_CODE(moira_queue_synchronize(queue), MOIRA_OK);
}

TEST_F(CApiQueue, StepsReadWhatOthersWrote) {
  // Shapes and lists of pointers may go at once; data and results stay.
  auto input = std::make_unique<Floats>(x.data, x.shape);
  Floats y(std::vector<float>(8), {2, 4}), z(std::vector<float>(8), {2, 4});
  DLManagedTensor *toY = &y.managed, *toZ = &z.managed;
  Gate gate;
  ASSERT_CODE(moira_queue_call(queue, Gate::pass, &gate, nullptr), MOIRA_OK);
  {
    Floats view({}, x.shape);
    view.managed.dl_tensor.data = x.data.data();
    ASSERT_CODE(invoke(view, &toY, nullptr), MOIRA_OK);
    view.shape[0] = 77;
  }
  ASSERT_CODE(invoke(y, &toZ, nullptr), MOIRA_OK);
  gate.open();
  ASSERT_CODE(moira_queue_synchronize(queue), MOIRA_OK);
  EXPECT_EQ(std::memcmp(y.data.data(), expected, sizeof(expected)), 0);
  // What a call makes of y.
  const DLTensor *inputs[] = {y.dl()};
  DLManagedTensor *again = nullptr;
  ASSERT_CODE(moira_session_invoke(session, "main", inputs, 1, &again, 1),
              MOIRA_OK);
  EXPECT_EQ(std::memcmp(again->dl_tensor.data, z.data.data(), sizeof(expected)),
            0);
  again->deleter(again);
}

TEST_F(CApiQueue, KeepsTheOrderOfManyThreads) {
  constexpr int threads = 4, each = 200;
  std::vector<int> list;
  std::vector<Note> notes(threads * each);
  std::vector<std::thread> callers;
  for (int t = 0; t < threads; ++t)
    callers.emplace_back([&, t] {
      int64_t last = 0;
      for (int i = 0; i < each; ++i) {
        Note &note = notes[t * each + i];
        note = {&list, t * each + i};
        int64_t ticket = 0;
        EXPECT_CODE(moira_queue_call(queue, Note::write, &note, &ticket),
                    MOIRA_OK);
        EXPECT_GT(ticket, last);
        last = ticket;
      }
      EXPECT_CODE(moira_queue_wait(queue, last), MOIRA_OK);
    });
  for (std::thread &caller : callers)
    caller.join();
  ASSERT_EQ(list.size(), size_t(threads * each));
  std::vector<int> next(threads, 0);
  for (int number : list)
    EXPECT_EQ(number % each, next[number / each]++);
}

TEST_F(CApiQueue, AFailureEndsWhatStandsBehindIt) {
  Gate gate;
  std::vector<int> list;
  Note before{&list, 1}, after{&list, 2}, later{&list, 3};
  int64_t failing = 0, skipped = 0, fine = 0;
  DLManagedTensor *result = nullptr;
  ASSERT_CODE(moira_queue_call(queue, Gate::pass, &gate, nullptr), MOIRA_OK);
  ASSERT_CODE(moira_queue_call(queue, Note::write, &before, &fine), MOIRA_OK);
  ASSERT_CODE(moira_queue_call(queue, fail, nullptr, &failing), MOIRA_OK);
  ASSERT_CODE(moira_queue_call(queue, Note::write, &after, nullptr), MOIRA_OK);
  ASSERT_CODE(invoke(x, &result, &skipped), MOIRA_OK);
  gate.open();
  const char *reason = "no such file: expected a readable file, got: No such "
                       "file or directory";
  EXPECT_CODE(moira_queue_wait(queue, fine), MOIRA_OK);
  EXPECT_MESSAGE(moira_queue_wait(queue, failing), MOIRA_NOT_FOUND, reason);
  std::string behind = "not run, since ticket 3 has failed: ";
  EXPECT_MESSAGE(moira_queue_wait(queue, skipped), MOIRA_NOT_FOUND,
                 (behind + reason).c_str());
  EXPECT_EQ(result, nullptr);
  EXPECT_MESSAGE(moira_queue_synchronize(queue), MOIRA_NOT_FOUND, reason);
  // That was told once; the queue works again, and tickets keep what they had.
  EXPECT_CODE(moira_queue_synchronize(queue), MOIRA_OK);
  ASSERT_CODE(moira_queue_call(queue, Note::write, &later, &fine), MOIRA_OK);
  EXPECT_CODE(moira_queue_wait(queue, fine), MOIRA_OK);
  EXPECT_CODE(moira_queue_wait(queue, failing), MOIRA_NOT_FOUND);
  EXPECT_EQ(list, (std::vector<int>{1, 3}));
}

TEST_F(CApiQueue, AStepThatFailsSaysWhy) {
  Floats wrong({1, 2, 3}, {1, 3});
  DLManagedTensor *result = nullptr;
  int64_t ticket = 0;
  ASSERT_CODE(invoke(wrong, &result, &ticket), MOIRA_OK);
  EXPECT_MESSAGE(moira_queue_wait(queue, ticket), MOIRA_INVALID_ARGUMENT,
                 "entry 'main': input 0 'x': expected f32[?, 4], got f32[1, "
                 "3]");
  EXPECT_EQ(result, nullptr);
  EXPECT_CODE(moira_queue_synchronize(queue), MOIRA_INVALID_ARGUMENT);
}

TEST_F(CApiQueue, QueuesWaitForEachOther) {
  moira_queue *other = nullptr;
  ASSERT_CODE(moira_queue_create(nullptr, &other), MOIRA_OK);
  Gate gate;
  std::vector<int> list;
  Note first{&list, 1}, second{&list, 2};
  int64_t ticket = 0, own = 0;
  ASSERT_CODE(moira_queue_call(queue, Gate::pass, &gate, nullptr), MOIRA_OK);
  ASSERT_CODE(moira_queue_call(queue, Note::write, &first, &ticket), MOIRA_OK);
  ASSERT_CODE(moira_queue_after(other, queue, ticket, &own), MOIRA_OK);
  EXPECT_EQ(own, 1);
  ASSERT_CODE(moira_queue_call(other, Note::write, &second, nullptr), MOIRA_OK);
  EXPECT_CODE(moira_queue_after(other, other, own, nullptr), MOIRA_OK);
  gate.open();
  EXPECT_CODE(moira_queue_synchronize(other), MOIRA_OK);
  EXPECT_EQ(list, (std::vector<int>{1, 2}));
  // Failures come along.
  ASSERT_CODE(moira_queue_call(queue, fail, nullptr, &ticket), MOIRA_OK);
  ASSERT_CODE(moira_queue_after(other, queue, ticket, nullptr), MOIRA_OK);
  EXPECT_CODE(moira_queue_synchronize(other), MOIRA_NOT_FOUND);
  moira_queue_destroy(other);
}

namespace {
/// A queue of the caller: work runs when it says so, in any order.
struct Caller {
  std::vector<std::pair<void (*)(void *), void *>> waiting;
  static void submit(void *context, void (*run)(void *), void *work) {
    static_cast<Caller *>(context)->waiting.emplace_back(run, work);
  }
  void runLast() {
    auto [run, work] = waiting.back();
    waiting.pop_back();
    run(work);
  }
};
} // namespace

TEST_F(CApiQueue, RunsWhereTheCallerSays) {
  Caller caller;
  moira_queue_options options{};
  options.struct_size = sizeof(options);
  options.submit = Caller::submit;
  options.context = &caller;
  moira_queue *own = nullptr;
  ASSERT_CODE(moira_queue_create(&options, &own), MOIRA_OK);
  std::vector<int> list;
  Note first{&list, 1}, second{&list, 2};
  int64_t ticket = 0;
  int32_t done = -1;
  ASSERT_CODE(moira_queue_call(own, Note::write, &first, &ticket), MOIRA_OK);
  ASSERT_CODE(moira_queue_call(own, Note::write, &second, nullptr), MOIRA_OK);
  ASSERT_EQ(caller.waiting.size(), 2u);
  EXPECT_CODE(moira_queue_done(own, ticket, &done), MOIRA_OK);
  EXPECT_EQ(done, 0);
  caller.runLast();
  EXPECT_EQ(list, (std::vector<int>{1}));
  EXPECT_CODE(moira_queue_wait(own, ticket), MOIRA_OK);
  caller.runLast();
  EXPECT_CODE(moira_queue_synchronize(own), MOIRA_OK);
  EXPECT_EQ(list, (std::vector<int>{1, 2}));
  moira_queue_destroy(own);
}

TEST_F(CApiQueue, AnExecutorOfManyThreadsKeepsTheOrder) {
  // Each piece has a thread of its own.
  struct Pool {
    std::mutex mutex;
    std::vector<std::thread> threads;
    static void submit(void *context, void (*run)(void *), void *work) {
      auto *self = static_cast<Pool *>(context);
      std::lock_guard<std::mutex> lock(self->mutex);
      self->threads.emplace_back([run, work] { run(work); });
    }
  } pool;
  moira_queue_options options{};
  options.struct_size = sizeof(options);
  options.submit = Pool::submit;
  options.context = &pool;
  moira_queue *own = nullptr;
  ASSERT_CODE(moira_queue_create(&options, &own), MOIRA_OK);
  constexpr int count = 100;
  std::vector<int> list;
  std::vector<Note> notes(count);
  for (int i = 0; i < count; ++i) {
    notes[i] = {&list, i};
    ASSERT_CODE(moira_queue_call(own, Note::write, &notes[i], nullptr),
                MOIRA_OK);
  }
  EXPECT_CODE(moira_queue_synchronize(own), MOIRA_OK);
  moira_queue_destroy(own);
  for (std::thread &thread : pool.threads)
    thread.join();
  ASSERT_EQ(list.size(), size_t(count));
  for (int i = 0; i < count; ++i)
    EXPECT_EQ(list[i], i);
}

TEST_F(CApiQueue, WorkDoesNotWaitForItself) {
  struct Self {
    moira_queue *queue;
    int32_t code = -1;
    std::string message;
    std::vector<int> list;
    Note note{&list, 5};
    static int32_t run(void *self) {
      auto *me = static_cast<Self *>(self);
      int64_t ticket = 0;
      // It may queue more.
      EXPECT_CODE(moira_queue_call(me->queue, Note::write, &me->note, &ticket),
                  MOIRA_OK);
      me->code = moira_queue_wait(me->queue, ticket);
      me->message = moira_error_message();
      EXPECT_CODE(moira_queue_synchronize(me->queue), MOIRA_INVALID_ARGUMENT);
      return MOIRA_OK;
    }
  } self{queue, -1, {}, {}};
  ASSERT_CODE(moira_queue_call(queue, Self::run, &self, nullptr), MOIRA_OK);
  // The second piece is queued while the first runs, or before it ends.
  ASSERT_CODE(moira_queue_synchronize(queue), MOIRA_OK);
  ASSERT_CODE(moira_queue_synchronize(queue), MOIRA_OK);
  EXPECT_EQ(self.code, MOIRA_INVALID_ARGUMENT);
  EXPECT_EQ(self.message, "expected a wait from outside of the queue's work, "
                          "got one from a piece of it, which would wait for "
                          "itself");
  EXPECT_EQ(self.list, (std::vector<int>{5}));
}

TEST_F(CApiQueue, DestroyWaits) {
  std::vector<int> list;
  std::vector<Note> notes;
  for (int i = 0; i < 50; ++i)
    notes.push_back({&list, i});
  for (Note &note : notes)
    ASSERT_CODE(moira_queue_call(queue, Note::write, &note, nullptr), MOIRA_OK);
  moira_queue_destroy(std::exchange(queue, nullptr));
  EXPECT_EQ(list.size(), notes.size());
}

TEST_F(CApiQueue, WrongArguments) {
  const int32_t bad = MOIRA_INVALID_ARGUMENT;
  DLManagedTensor *result = nullptr;
  const DLTensor *inputs[] = {x.dl()};
  int64_t ticket = 0;
  int32_t done;
  EXPECT_MESSAGE(moira_queue_create(nullptr, nullptr), bad,
                 "queue: expected a pointer, got null");
  moira_queue_options options{};
  moira_queue *other = nullptr;
  EXPECT_CODE(moira_queue_create(&options, &other), bad);
  EXPECT_CODE(moira_queue_invoke(nullptr, session, "main", inputs, 1, &result,
                                 1, &ticket),
              bad);
  EXPECT_CODE(moira_queue_invoke(queue, nullptr, "main", inputs, 1, &result, 1,
                                 &ticket),
              bad);
  // One rank hears of its own mistakes at once.
  EXPECT_CODE(moira_queue_invoke(queue, session, "main", nullptr, 1, &result, 1,
                                 &ticket),
              bad);
  EXPECT_CODE(moira_queue_invoke(queue, session, "main", inputs, 1, &result, 2,
                                 &ticket),
              bad);
  EXPECT_CODE(moira_queue_call(nullptr, fail, nullptr, nullptr), bad);
  EXPECT_CODE(moira_queue_call(queue, nullptr, nullptr, nullptr), bad);
  EXPECT_CODE(moira_queue_after(nullptr, queue, 1, nullptr), bad);
  EXPECT_CODE(moira_queue_after(queue, nullptr, 1, nullptr), bad);
  EXPECT_MESSAGE(moira_queue_after(queue, queue, 1, nullptr), bad,
                 "expected a ticket of the queue, 1 to 0, got 1");
  EXPECT_CODE(moira_queue_wait(nullptr, 1), bad);
  EXPECT_CODE(moira_queue_wait(queue, 0), bad);
  EXPECT_CODE(moira_queue_done(nullptr, 1, &done), bad);
  EXPECT_CODE(moira_queue_done(queue, 1, nullptr), bad);
  EXPECT_CODE(moira_queue_done(queue, 1, &done), bad);
  EXPECT_CODE(moira_queue_synchronize(nullptr), bad);
  EXPECT_EQ(ticket, 0);
  moira_queue_destroy(nullptr);
}

TEST(CApiQueueOfRanks, MistakesOfOneRankReachAll) {
  constexpr int ranks = 2;
  moira_bundle *bundle = nullptr;
  moira_ranks *group[ranks] = {};
  moira_ranks_options options{};
  options.struct_size = sizeof(options);
  options.timeout = 20;
  ASSERT_CODE(moira_bundle_open(MOIRA_TEST_RANKS_BUNDLE, &bundle), MOIRA_OK);
  ASSERT_CODE(moira_ranks_threads(ranks, &options, group), MOIRA_OK);
  moira_session *sessions[ranks] = {};
  moira_queue *queues[ranks] = {};
  DLManagedTensor *results[ranks] = {}, *fine[ranks] = {};
  int64_t tickets[ranks] = {};
  // One thread drives all ranks: their queues have threads.
  Floats x({1, 2, 3, 4}, {1, 4});
  const DLTensor *inputs[] = {x.dl()};
  for (int rank = 0; rank < ranks; ++rank) {
    moira_session_options created{};
    created.struct_size = sizeof(created);
    created.threads = 1;
    created.ranks = group[rank];
    ASSERT_CODE(moira_session_create(bundle, &created, &sessions[rank]),
                MOIRA_OK);
    ASSERT_CODE(moira_session_bind_random(sessions[rank], 1), MOIRA_OK);
    ASSERT_CODE(moira_queue_create(nullptr, &queues[rank]), MOIRA_OK);
    ASSERT_CODE(moira_queue_invoke(queues[rank], sessions[rank], nullptr,
                                   inputs, 1, &fine[rank], 1, nullptr),
                MOIRA_OK);
    ASSERT_CODE(moira_queue_invoke(queues[rank], sessions[rank], nullptr,
                                   inputs, rank == 0 ? 1 : -1, &results[rank],
                                   1, &tickets[rank]),
                MOIRA_OK);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_CODE(moira_queue_wait(queues[rank], tickets[rank]),
                MOIRA_INVALID_ARGUMENT);
    EXPECT_NE(std::string(moira_error_message()).find("rank 1"),
              std::string::npos)
        << moira_error_message();
    EXPECT_EQ(results[rank], nullptr);
    ASSERT_NE(fine[rank], nullptr);
    fine[rank]->deleter(fine[rank]);
    moira_queue_destroy(queues[rank]);
    moira_session_destroy(sessions[rank]);
    moira_ranks_destroy(group[rank]);
  }
  moira_bundle_close(bundle);
}
