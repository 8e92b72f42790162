// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "DebugSymbols.h"

#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/Debugging/ELFDebugObjectPlugin.h"
#include "llvm/ExecutionEngine/Orc/Debugging/PerfSupportPlugin.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/ExecutionEngine/Orc/TargetProcess/JITLoaderPerf.h"

using namespace moira;
namespace orc = llvm::orc;
using WrapperResult = orc::shared::CWrapperFunctionBuffer;

namespace {
/// The file of perf's jitdump format: one for the process, however many objects
/// there are. LLVM's plug-in would open one for each and refuse the second.
class PerfDump {
public:
  static void open() { static PerfDump dump; }

private:
  PerfDump() {
    orc::shared::WrapperFunctionBuffer(
        llvm_orc_registerJITLoaderPerfStart(nullptr, 0));
  }
  ~PerfDump() {
    orc::shared::WrapperFunctionBuffer(
        llvm_orc_registerJITLoaderPerfEnd(nullptr, 0));
  }
};
} // namespace

static WrapperResult startPerf(const char *, size_t) {
  PerfDump::open();
  return orc::shared::WrapperFunctionBuffer().release();
}

/// The end of the process ends it.
static WrapperResult endPerf(const char *, size_t) {
  return orc::shared::WrapperFunctionBuffer().release();
}

llvm::Error moira::addSymbols(orc::ExecutionSession &session,
                              orc::ObjectLinkingLayer &layer,
                              const JitSymbols &symbols) {
  if (symbols.gdb) {
    llvm::Error error = llvm::Error::success();
    // Names are worth having without lines too.
    auto plugin = std::make_shared<orc::ELFDebugObjectPlugin>(
        session, /*RequireDebugSections=*/false, /*AutoRegisterCode=*/true,
        error);
    if (error)
      return error;
    layer.addPlugin(std::move(plugin));
  }
  if (symbols.perf)
    layer.addPlugin(std::make_shared<orc::PerfSupportPlugin>(
        session.getExecutorProcessControl(),
        orc::ExecutorAddr::fromPtr(startPerf),
        orc::ExecutorAddr::fromPtr(endPerf),
        orc::ExecutorAddr::fromPtr(llvm_orc_registerJITLoaderPerfImpl),
        /*EmitDebugInfo=*/false, /*EmitUnwindInfo=*/false));
  return llvm::Error::success();
}
