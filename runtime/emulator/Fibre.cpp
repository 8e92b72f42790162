// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// On x86-64 a switch is a dozen instructions; elsewhere it is POSIX's
// swapcontext, which asks the system for the signal mask at every switch.

#include "emulator/Fibre.h"

#include <sys/mman.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MOIRA_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define MOIRA_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define MOIRA_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define MOIRA_TSAN 1
#endif

#ifdef MOIRA_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef MOIRA_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__) && !defined(MOIRA_PORTABLE_FIBRES)
#define MOIRA_OWN_SWITCH 1
#else
#include <ucontext.h>
#endif

using namespace moira;
using namespace moira::emulator;

/// Bytes of a fibre's stack; pages are only taken when touched.
static constexpr size_t stackBytes = 128 << 10;
/// Stacks that begin at the same place of their pages fight for the same sets
/// of the first-level cache.
static constexpr size_t staggerBytes = 192, staggerSteps = 67;

#ifdef MOIRA_OWN_SWITCH
extern "C" void moiraFibreSwitch(void **save, void *to);
// Callee-saved registers go onto the stack that is left; floating-point control
// words are the same on all fibres.
asm(R"(
.text
.globl moiraFibreSwitch
.hidden moiraFibreSwitch
.type moiraFibreSwitch, @function
moiraFibreSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size moiraFibreSwitch, . - moiraFibreSwitch
)");
#endif

struct FibreSet::Context {
#ifdef MOIRA_OWN_SWITCH
  void *stackPointer = nullptr;
#else
  ucontext_t context = {};
#endif
#ifdef MOIRA_ASAN
  void *fakeStack = nullptr;
#endif
  const void *bottom = nullptr; ///< of its stack
  size_t size = 0;
#ifdef MOIRA_TSAN
  void *fiber = nullptr;
#endif
};

struct FibreSet::Implementation {
  ~Implementation() {
    release();
    if (memory)
      munmap(memory, mapped);
  }

  void release() {
#ifdef MOIRA_TSAN
    for (Context &fibre : fibres)
      if (fibre.fiber)
        __tsan_destroy_fiber(fibre.fiber);
#endif
    fibres.clear();
  }

  std::vector<Context> fibres;
  Context outside;
  char *memory = nullptr;
  size_t mapped = 0;
  void (*function)(void *) = nullptr;
  void *argument = nullptr;
  FibreSet *set = nullptr;

  Context &at(int fibre) { return fibre < 0 ? outside : fibres[fibre]; }

  /// Where every fibre begins. The set is found through the thread: neither way
  /// of switching hands over an argument portably.
  static thread_local Implementation *active;
  [[noreturn]] static void begin();
  void arrived();
};

thread_local FibreSet::Implementation *FibreSet::Implementation::active =
    nullptr;

void FibreSet::Implementation::arrived() {
#ifdef MOIRA_ASAN
  Context &here = at(set->current);
  const void *bottom = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(here.fakeStack, &bottom, &size);
  if (!outside.bottom) {
    outside.bottom = bottom;
    outside.size = size;
  }
#endif
}

void FibreSet::Implementation::begin() {
  Implementation *self = active;
  self->arrived();
  self->function(self->argument);
  __builtin_trap(); // the function returned
}

FibreSet::FibreSet() : implementation(std::make_unique<Implementation>()) {
  implementation->set = this;
}
FibreSet::~FibreSet() = default;

Status FibreSet::reset(int count, void (*function)(void *), void *argument) {
  Implementation &own = *implementation;
  own.release();
  size_t needed = size_t(count) * stackBytes;
  if (needed > own.mapped) {
    if (own.memory)
      munmap(own.memory, own.mapped);
    own.mapped = 0;
    void *memory = mmap(nullptr, needed, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    own.memory = memory == MAP_FAILED ? nullptr : static_cast<char *>(memory);
    if (!own.memory)
      return Status(MOIRA_OUT_OF_MEMORY,
                    concat("emulated device: expected ", needed,
                           " bytes for stacks, got none"));
    own.mapped = needed;
  }
#ifdef MOIRA_ASAN
  // What abandoned functions had poisoned.
  __asan_unpoison_memory_region(own.memory, needed);
#endif
  own.function = function;
  own.argument = argument;
  own.fibres.resize(count);
  for (int i = 0; i < count; ++i) {
    Context &fibre = own.fibres[i];
    char *low = own.memory + size_t(i) * stackBytes;
    size_t size = stackBytes - 64 - (i % staggerSteps) * staggerBytes;
    fibre.bottom = low;
    fibre.size = size;
#ifdef MOIRA_OWN_SWITCH
    // A return address of its own keeps the alignment that the ABI wants at
    // the entry of a function: 8 beyond a multiple of 16.
    void **top = reinterpret_cast<void **>(low + (size & ~size_t(15)));
    *--top = nullptr;
    *--top = reinterpret_cast<void *>(&Implementation::begin);
    fibre.stackPointer = top - 6;
#else
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = low;
    fibre.context.uc_stack.ss_size = size;
    fibre.context.uc_link = nullptr;
    makecontext(&fibre.context, &Implementation::begin, 0);
#endif
#ifdef MOIRA_TSAN
    fibre.fiber = __tsan_create_fiber(0);
#endif
  }
  return Status();
}

void FibreSet::switchTo(int fibre) {
  if (fibre == current)
    return;
  Implementation &own = *implementation;
  Context &from = own.at(current);
  Context &to = own.at(fibre);
  Implementation *before = Implementation::active;
  if (current < 0)
    Implementation::active = &own;
#ifdef MOIRA_TSAN
  if (current < 0)
    own.outside.fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.fiber, 0);
#endif
  current = fibre;
#ifdef MOIRA_ASAN
  __sanitizer_start_switch_fiber(&from.fakeStack, to.bottom, to.size);
#endif
#ifdef MOIRA_OWN_SWITCH
  moiraFibreSwitch(&from.stackPointer, to.stackPointer);
#else
  swapcontext(&from.context, &to.context);
#endif
  own.arrived();
  if (current < 0)
    Implementation::active = before;
}
