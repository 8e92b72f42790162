// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ObjectCache.h"

#include "moira/Target/PTX.h"
#include "moira/runtime.h"
#include "session/BundleFile.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/CachePruning.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace moira;

/// What differs between two builds of the compiler: the version stays while
/// passes change.
static std::string describeBuild() {
  std::string text = moira_version();
  text += " " LLVM_VERSION_STRING;
  std::string executable = llvm::sys::fs::getMainExecutable(
      nullptr, reinterpret_cast<void *>(&describeBuild));
  llvm::sys::fs::file_status status;
  if (!llvm::sys::fs::status(executable, status)) {
    auto time = status.getLastModificationTime().time_since_epoch().count();
    text += " " + std::to_string(status.getSize()) + " " + std::to_string(time);
  }
  return text;
}

static std::string describeOptions(const JitOptions &options) {
  const PipelineOptions &pipeline = options.pipeline;
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << pipeline.entry << '\n';
  for (mlir::moe::RowClass rows : pipeline.rowClasses)
    stream << mlir::moe::stringifyRowClass(rows) << ' ';
  stream << '\n'
         << pipeline.oracle << pipeline.exposeRouting << pipeline.replayRouting
         << pipeline.gradients << pipeline.recompute << pipeline.packGradients
         << llvm::join(pipeline.updates, ",") << ' '
         << mlir::moe::stringifyFusions(pipeline.disabledFusions) << ' '
         << pipeline.vectorBits << pipeline.dotBF16 << pipeline.prefetchLevel
         << ' ' << pipeline.hiddenBlocks << ' ' << pipeline.ranks << ' '
         << pipeline.copies << ' ' << pipeline.spareSlots << ' '
         << pipeline.tokenBlocks << ' '
         << mlir::moe::stringifySchedule(pipeline.schedule) << ' '
         << options.optLevel << ' ' << pipeline.device.arch
         << pipeline.device.ptx << pipeline.device.emulated
         << pipeline.device.instrument
         << '\n'
         // Another assembler makes other kernels of the same program.
         << (pipeline.device.ptx ? describePtxas() : "") << '\n'
         << pipeline.moduleName << '\n'
         << pipeline.triple << '\n'
         << pipeline.cpu << '\n'
         << pipeline.features << '\n';
  return text;
}

std::string ObjectCache::pathOf(mlir::ModuleOp module,
                                const JitOptions &options) const {
  // Text without locations: a comment in the file changes nothing.
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream, mlir::OpPrintingFlags().printGenericOpForm());

  llvm::BLAKE3 hash;
  for (const std::string &part :
       {describeBuild(), describeOptions(options), text}) {
    hash.update(std::to_string(part.size()) + ":");
    hash.update(part);
  }
  llvm::SmallString<128> path(directory);
  // The prefix by which LLVM's pruning knows what it may remove.
  llvm::sys::path::append(path,
                          "llvmcache-" + llvm::toHex(hash.final<16>(), true));
  return std::string(path);
}

std::optional<CompiledObject> ObjectCache::read(const std::string &path) const {
  // The format is a bundle's, with checksums; the code is not linked.
  auto file = runtime::BundleFile::open(path);
  if (!file.ok())
    return std::nullopt;
  const runtime::BundleContents &contents = (*file)->contents();
  return CompiledObject{
      std::string(contents.manifest),
      llvm::MemoryBuffer::getMemBufferCopy(
          llvm::StringRef(contents.hostCode.data(), contents.hostCode.size())),
      std::string(contents.gpuCode)};
}

void ObjectCache::write(const std::string &path,
                        const CompiledObject &object) const {
  if (llvm::sys::fs::create_directories(directory))
    return;
  runtime::BundleContents contents;
  llvm::StringRef code = object.object->getBuffer();
  contents.manifest = object.manifest;
  contents.hostCode = std::string_view(code.data(), code.size());
  contents.gpuCode = object.gpuCode;
  if (!runtime::writeBundle(path, contents).ok())
    return;
  llvm::CachePruningPolicy policy;
  policy.MaxSizeBytes = uint64_t(1) << 30;
  llvm::pruneCache(directory, policy);
}
