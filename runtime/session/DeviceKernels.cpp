// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which of a program's kernels a device gets.

#include "session/DeviceStep.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace moira;
using namespace moira::runtime;

/// 80 of "sm_80", 90 of "sm_90a".
static int architectureOf(const std::string &arch) {
  return arch.size() > 3 ? std::atoi(arch.c_str() + 3) : 0;
}

/// Whether a GPU of architecture `there` runs code for `arch`.
static bool runsOn(const std::string &arch, int there) {
  // What ends in a letter runs on that architecture alone.
  bool isExact = !arch.empty() && arch.back() == 'a';
  int needed = architectureOf(arch);
  return isExact ? there == needed : there >= needed;
}

Result<std::shared_ptr<Module>> DeviceStep::loadImage(int index) {
  const ImageSpec &image = program->manifest().device->images[index];
  auto refuse = [&](const std::string &expected, const std::string &got) {
    return Status(
        MOIRA_UNAVAILABLE,
        concat("image '", image.name, "': expected ", expected, ", got ", got));
  };
  int there = gpu->architecture();
  if (!runsOn(image.arch, there))
    return refuse(concat("a GPU of ", image.arch), concat("one of sm_", there));
  if (std::strcmp(gpu->kind(), "emulated") == 0) {
    const void *address = program->emulatedImage(index);
    if (!address)
      return refuse("kernels for the emulated device",
                    concat("kernels of ", image.arch, " alone"));
    return gpu->load(address, 0);
  }
  CodeRange range = image.cubin.bytes > 0 && there == architectureOf(image.arch)
                        ? image.cubin
                        : image.ptx;
  if (range.bytes == 0)
    return refuse(concat("kernels for ", gpu->kind()),
                  "kernels for the emulated device alone");
  std::string_view code = program->gpuCode(range);
  return gpu->load(code.data(), static_cast<int64_t>(code.size()));
}

Status DeviceStep::loadKernels() {
  const DeviceSpec &spec = *program->manifest().device;
  // Images of another architecture stay out where others fit.
  auto fits = [&](const ImageSpec &image) {
    return runsOn(image.arch, gpu->architecture());
  };
  bool someFit = std::any_of(spec.images.begin(), spec.images.end(), fits);
  std::vector<std::shared_ptr<Module>> modules(spec.images.size());
  for (size_t i = 0; i < spec.images.size(); ++i) {
    if (someFit && !fits(spec.images[i]))
      continue;
    Result<std::shared_ptr<Module>> module = loadImage(static_cast<int>(i));
    if (!module.ok())
      return module.status();
    modules[i] = *module;
  }
  for (const KernelSpec &kernel : spec.kernels) {
    if (!modules[kernel.image]) {
      kernels.push_back(nullptr);
      continue;
    }
    if (kernel.shared > gpu->maxShared())
      return Status(MOIRA_UNAVAILABLE,
                    concat("kernel ", kernel.name, ": expected a device with ",
                           kernel.shared, " bytes of shared memory, got ",
                           gpu->maxShared()));
    Result<std::shared_ptr<Kernel>> found =
        gpu->find(modules[kernel.image], kernel.name);
    if (!found.ok())
      return found.status();
    kernels.push_back(*found);
  }
  return Status();
}
