// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/HostCode.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace moira;
using namespace moira::runtime;

#if defined(__x86_64__)
static constexpr uint16_t hostMachine = EM_X86_64;
static constexpr const char *hostName = "x86_64";
#elif defined(__aarch64__)
static constexpr uint16_t hostMachine = EM_AARCH64;
static constexpr const char *hostName = "aarch64";
#else
#error "no host code is made for this machine"
#endif

//===----------------------------------------------------------------------===//
// Does it run here?
//===----------------------------------------------------------------------===//

#if defined(__x86_64__)
/// False only for a feature that is known and missing.
static bool hasFeature(std::string_view feature) {
  __builtin_cpu_init();
#define MOIRA_FEATURE(name)                                                    \
  if (feature == name)                                                         \
    return __builtin_cpu_supports(name);
  MOIRA_FEATURE("sse3")
  MOIRA_FEATURE("ssse3")
  MOIRA_FEATURE("sse4.1")
  MOIRA_FEATURE("sse4.2")
  MOIRA_FEATURE("popcnt")
  MOIRA_FEATURE("avx")
  MOIRA_FEATURE("avx2")
  MOIRA_FEATURE("fma")
  MOIRA_FEATURE("bmi")
  MOIRA_FEATURE("bmi2")
  MOIRA_FEATURE("avx512f")
  MOIRA_FEATURE("avx512bw")
  MOIRA_FEATURE("avx512cd")
  MOIRA_FEATURE("avx512dq")
  MOIRA_FEATURE("avx512vl")
  MOIRA_FEATURE("avx512ifma")
  MOIRA_FEATURE("avx512vbmi")
  MOIRA_FEATURE("avx512vbmi2")
  MOIRA_FEATURE("avx512vnni")
  MOIRA_FEATURE("avx512bitalg")
  MOIRA_FEATURE("avx512vpopcntdq")
  MOIRA_FEATURE("avx512bf16")
#undef MOIRA_FEATURE
  return true;
}
#else
static bool hasFeature(std::string_view) { return true; }
#endif

Status runtime::checkTarget(const Target &target) {
  std::string_view triple = target.triple;
  std::string_view machine = triple.substr(0, triple.find('-'));
  if (!machine.empty() && machine != hostName)
    return Status(MOIRA_UNAVAILABLE, concat("expected code for ", hostName,
                                            ", got code for ", machine));
  std::string_view rest = target.features;
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    if (item.size() > 1 && item[0] == '+' && !hasFeature(item.substr(1)))
      return Status(
          MOIRA_UNAVAILABLE,
          concat("expected a cpu with ", item.substr(1), ", got one without"));
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  return Status();
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

/// What the dynamic linker would say less clearly.
static Status checkImage(std::string_view image) {
  Elf64_Ehdr header;
  if (image.size() < sizeof(header) ||
      std::memcmp(image.data(), ELFMAG, SELFMAG) != 0)
    return Status(MOIRA_DATA_LOSS,
                  "host code: expected an elf shared object, got other bytes");
  std::memcpy(&header, image.data(), sizeof(header));
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN)
    return Status(MOIRA_DATA_LOSS,
                  "host code: expected a 64-bit elf shared object, got "
                  "another kind of elf file");
  if (header.e_machine != hostMachine)
    return Status(MOIRA_UNAVAILABLE,
                  concat("host code: expected elf machine ", hostMachine, " (",
                         hostName, "), got ", header.e_machine));
  return Status();
}

static bool writeAll(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t done = write(descriptor, bytes.data(),
                         std::min<size_t>(bytes.size(), 1 << 30));
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      return false;
    bytes.remove_prefix(done);
  }
  return true;
}

static std::string pathOf(int descriptor) {
  return "/proc/self/fd/" + std::to_string(descriptor);
}

Result<std::shared_ptr<HostCode>> HostCode::load(std::string_view image) {
  MOIRA_RETURN_IF_ERROR(checkImage(image));
  int descriptor = memfd_create("moira-code", MFD_CLOEXEC);
  if (descriptor < 0 || !writeAll(descriptor, image)) {
    Status status(MOIRA_UNAVAILABLE,
                  concat("host code: expected a file in memory, got: ",
                         std::strerror(errno)));
    if (descriptor >= 0)
      close(descriptor);
    return status;
  }
  void *handle = dlopen(pathOf(descriptor).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *text = dlerror();
    std::string reason = text ? text : "no reason";
    // The path of the memory file says nothing to anybody.
    std::string path = pathOf(descriptor) + ": ";
    if (reason.compare(0, path.size(), path) == 0)
      reason.erase(0, path.size());
    close(descriptor);
    return Status(
        MOIRA_DATA_LOSS,
        concat("host code: expected a loadable object, got: ", reason));
  }
  return std::shared_ptr<HostCode>(new HostCode(handle, descriptor));
}

HostCode::~HostCode() {
  dlclose(handle);
  // The dynamic linker knows a library by its path. While one is loaded, its
  // descriptor must stay open, so that no other code gets the same path; and
  // some stay loaded after the last close.
  void *still =
      dlopen(pathOf(descriptor).c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_LOCAL);
  if (still) {
    dlclose(still);
    return;
  }
  close(descriptor);
}

void *HostCode::find(const char *symbol) const { return dlsym(handle, symbol); }
