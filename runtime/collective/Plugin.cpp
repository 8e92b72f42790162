// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/Plugin.h"

#include <dlfcn.h>
#include <unistd.h>

using namespace moira;
using namespace moira::runtime;

/// The folder of the library or program that contains this function.
static std::string ownFolder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void *>(&ownFolder), &info) || !info.dli_fname)
    return "";
  std::string path = info.dli_fname;
  // A program is named as it was called: without a folder where a shell has
  // found it.
  char self[4096];
  if (path.find('/') == std::string::npos) {
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self));
    if (length > 0)
      path.assign(self, length);
  }
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

static Result<PluginEntry> load(const std::string &name,
                                const std::string &path) {
  const std::string file = concat("libmoira_", name, ".so");
  std::vector<std::string> places{path};
  if (path.empty()) {
    const std::string folder = ownFolder();
    places = {folder + file, folder + "../lib/" + file, file};
  }
  std::string reasons;
  for (const std::string &place : places) {
    // Local: two plug-ins may bring two versions of one library.
    void *library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      reasons += concat(reasons.empty() ? "" : "; ", dlerror());
      continue;
    }
    if (void *entry = dlsym(library, "moira_open_transport"))
      return reinterpret_cast<PluginEntry>(entry);
    reasons +=
        concat(reasons.empty() ? "" : "; ", place, ": no moira_open_transport");
    dlclose(library);
  }
  return Status(MOIRA_UNAVAILABLE,
                concat("no transport '", name, "': ", reasons));
}

Result<std::unique_ptr<Transport>>
moira::runtime::openPlugin(const std::string &name, const std::string &path) {
  Result<PluginEntry> entry = load(name, path);
  if (!entry.ok())
    return entry.status();
  PluginAnswer answer;
  (*entry)(transportInterface, &answer);
  if (!answer.status.ok())
    return answer.status.within(concat("transport '", name, "'"));
  return std::unique_ptr<Transport>(answer.transport);
}
