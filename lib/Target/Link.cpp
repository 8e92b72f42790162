// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Target/Link.h"

#include "Linkers.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <dlfcn.h>
#include <link.h>

using namespace moira;

//===----------------------------------------------------------------------===//
// SystemLibraries
//===----------------------------------------------------------------------===//

static std::string pathOf(const char *name) {
  void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (!library)
    return {};
  link_map *map = nullptr;
  std::string path;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name)
    path = map->l_name;
  dlclose(library);
  return path;
}

SystemLibraries::SystemLibraries()
    : handle(dlopen("libm.so.6", RTLD_LAZY | RTLD_LOCAL)),
      math(pathOf("libm.so.6")), c(pathOf("libc.so.6")) {}

const SystemLibraries &SystemLibraries::get() {
  static const SystemLibraries libraries;
  return libraries;
}

void *SystemLibraries::find(const char *symbol) const {
  // Looks in the mathematics library and in what it needs: the C library.
  return handle ? dlsym(handle, symbol) : nullptr;
}

//===----------------------------------------------------------------------===//
// Linking
//===----------------------------------------------------------------------===//

namespace {
/// A file that is gone when this object is.
class TemporaryFile {
public:
  TemporaryFile() = default;
  ~TemporaryFile() {
    if (!path.empty())
      llvm::sys::fs::remove(path);
  }
  TemporaryFile(const TemporaryFile &) = delete;
  TemporaryFile &operator=(const TemporaryFile &) = delete;

  llvm::Error create(llvm::StringRef suffix) {
    if (std::error_code error =
            llvm::sys::fs::createTemporaryFile("moira", suffix, path))
      return llvm::createStringError(error,
                                     "expected a temporary file, got '%s'",
                                     error.message().c_str());
    return llvm::Error::success();
  }

  llvm::SmallString<128> path;
};
} // namespace

/// The first linker of this machine; `isDriver` where it is the compiler's.
static llvm::Expected<std::string> findLinker(bool &isDriver) {
  isDriver = false;
  const llvm::StringRef tools = MOIRA_LLVM_TOOLS_DIR;
  if (auto found = llvm::sys::findProgramByName("ld.lld", tools))
    return *found;
  for (llvm::StringRef name : {"ld.lld-22", "ld.lld"})
    if (auto found = llvm::sys::findProgramByName(name))
      return *found;
  isDriver = true;
  if (auto found = llvm::sys::findProgramByName("cc"))
    return *found;
  return llvm::createStringError(
      "expected a linker (ld.lld or cc) on PATH, got none");
}

/// The first line of what a linker wrote, without the linker's own name.
static std::string firstError(llvm::StringRef path) {
  auto text = llvm::MemoryBuffer::getFile(path);
  if (!text)
    return "no message";
  llvm::StringRef rest = (*text)->getBuffer().trim();
  llvm::StringRef line = rest.split('\n').first.trim();
  size_t place = line.find("error: ");
  return (place == llvm::StringRef::npos ? line : line.substr(place + 7)).str();
}

llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>>
moira::linkSharedObject(llvm::MemoryBufferRef object) {
  bool isDriver = false;
  llvm::Expected<std::string> linker = findLinker(isDriver);
  if (!linker)
    return linker.takeError();
  TemporaryFile input, output, log;
  if (llvm::Error error = input.create("o"))
    return error;
  if (llvm::Error error = output.create("so"))
    return error;
  if (llvm::Error error = log.create("txt"))
    return error;
  std::error_code error;
  {
    llvm::raw_fd_ostream stream(input.path, error);
    if (!error)
      stream << object.getBuffer();
    stream.close();
    if (stream.has_error())
      error = stream.error();
    stream.clear_error();
  }
  if (error)
    return llvm::createStringError(error, "%s: expected to write, got '%s'",
                                   input.path.c_str(), error.message().c_str());

  llvm::SmallVector<llvm::StringRef> args = {*linker, "-shared", "-o",
                                             output.path, input.path};
  // Everything must be resolved now: the machine that loads the code has no
  // better libraries.
  if (isDriver)
    llvm::append_range(
        args, llvm::ArrayRef<llvm::StringRef>{"-nostdlib", "-Wl,-z,defs",
                                              "-Wl,--as-needed"});
  else
    llvm::append_range(args, llvm::ArrayRef<llvm::StringRef>{
                                 "-z", "defs", "--as-needed",
                                 "--hash-style=gnu", "--build-id=none"});
  const SystemLibraries &libraries = SystemLibraries::get();
  for (const std::string *library : {&libraries.mathPath(), &libraries.cPath()})
    if (!library->empty())
      args.push_back(*library);

  std::string message;
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""),
                                                llvm::StringRef(log.path),
                                                llvm::StringRef(log.path)};
  int code = llvm::sys::ExecuteAndWait(*linker, args, std::nullopt, redirects,
                                       /*SecondsToWait=*/120,
                                       /*MemoryLimit=*/0, &message);
  if (code != 0)
    return llvm::createStringError(
        *linker + ": expected to link, got '" +
        (message.empty() ? firstError(log.path) : message) + "'");
  // Read, not mapped: the file goes.
  auto linked = llvm::MemoryBuffer::getFile(output.path, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false,
                                            /*IsVolatile=*/true);
  if (!linked)
    return llvm::createStringError(
        linked.getError(), "%s: expected to read, got '%s'",
        output.path.c_str(), linked.getError().message().c_str());
  return std::move(*linked);
}
