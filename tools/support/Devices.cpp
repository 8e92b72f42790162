// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "support/Devices.h"

using namespace moira;
using namespace moira::tools;
namespace cl = llvm::cl;

DeviceCommandLine::DeviceCommandLine(cl::OptionCategory &category)
    : device("device", cl::init("cpu"), cl::value_desc("cpu|emulated|cuda"),
             cl::cat(category),
             cl::desc("What steps run on: the processor (default), a GPU that "
                      "runs on the processor and checks its kernels, or an "
                      "NVIDIA GPU")),
      arch("arch", cl::value_desc("sm_80|sm_90a"), cl::cat(category),
           cl::desc("With --device: the GPU to compile for (default: sm_80; of "
                    "a bundle what it was compiled for)")),
      check("check", cl::value_desc("race,bounds,uninit,sync,counters|all"),
            cl::cat(category),
            cl::desc("With --device=emulated: what to look for in kernels "
                     "(default: bounds)")) {}

llvm::Expected<std::string> tools::readArch(llvm::StringRef option,
                                            llvm::StringRef text) {
  if (text == "sm_80" || text == "sm_90a")
    return text.str();
  return llvm::createStringError(
      "--" + option + ": expected sm_80 or sm_90a, got '" + text + "'");
}

llvm::Expected<DeviceChoice> tools::readDevice(const DeviceCommandLine &line) {
  DeviceChoice choice;
  choice.kind = line.device;
  if (!llvm::is_contained({"cpu", "emulated", "cuda"}, choice.kind))
    return llvm::createStringError(
        "--device: expected cpu, emulated or cuda, got '" + choice.kind + "'");
  bool hasArch = line.arch.getNumOccurrences() > 0;
  bool hasCheck = line.check.getNumOccurrences() > 0;
  if (hasArch && !choice.isGPU())
    return llvm::createStringError(
        "--arch: expected --device=emulated or cuda beside it, got --device=" +
        choice.kind);
  if (hasCheck && choice.kind != "emulated")
    return llvm::createStringError(
        "--check: expected --device=emulated beside it, got --device=" +
        choice.kind);
  if (!choice.isGPU())
    return choice;
  llvm::Expected<std::string> arch =
      readArch("arch", hasArch ? line.arch.getValue() : "sm_80");
  if (!arch)
    return arch.takeError();
  choice.arch = *arch;
  choice.checks.bounds = true;
  if (hasCheck && !emulator::parseChecks(line.check, choice.checks))
    return llvm::createStringError(
        "--check: expected a list of race, bounds, uninit, sync, counters, or "
        "all, got '" +
        line.check + "'");
  return choice;
}

DeviceOptions DeviceChoice::options() const {
  DeviceOptions options;
  options.arch = arch;
  options.emulated = kind == "emulated";
  options.ptx = kind == "cuda";
  options.instrument = options.emulated && checks.any();
  return options;
}

llvm::Expected<std::shared_ptr<runtime::Device>>
DeviceChoice::open(int ordinal) const {
  if (!isGPU())
    return nullptr;
  if (kind == "emulated") {
    runtime::EmulatedOptions options;
    options.checks = checks;
    options.architecture = arch == "sm_80" ? 80 : 90;
    return std::shared_ptr<runtime::Device>(runtime::openEmulated(options));
  }
  auto device = runtime::openCuda(ordinal);
  if (!device.ok())
    return toError(device.status().within("--device=cuda"));
  return std::shared_ptr<runtime::Device>(std::move(*device));
}
