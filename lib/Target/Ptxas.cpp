// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Target/PTX.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>

using namespace moira;

std::string moira::findPtxas() {
  if (const char *given = getenv("MOIRA_PTXAS"))
    return given;
  if (auto found = llvm::sys::findProgramByName("ptxas"))
    return *found;
  if (auto found =
          llvm::sys::findProgramByName("ptxas", {"/usr/local/cuda/bin"}))
    return *found;
  return "";
}

/// Runs ptxas with what it says in `log`.
static int runPtxas(const std::string &ptxas,
                    llvm::ArrayRef<llvm::StringRef> arguments,
                    llvm::StringRef log, std::string &message) {
  llvm::SmallVector<llvm::StringRef> all = {ptxas};
  all.append(arguments.begin(), arguments.end());
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), log, log};
  return llvm::sys::ExecuteAndWait(ptxas, all, std::nullopt, redirects,
                                   /*SecondsToWait=*/300, /*MemoryLimit=*/0,
                                   &message);
}

std::string moira::describePtxas() {
  std::string text = findPtxas();
  llvm::SmallString<128> log;
  if (text.empty() || llvm::sys::fs::createTemporaryFile("moira", "txt", log))
    return text;
  llvm::FileRemover remove(log);
  std::string message;
  if (runPtxas(text, {"--version"}, log, message) == 0)
    if (auto said = llvm::MemoryBuffer::getFile(log))
      text += "\n" + (*said)->getBuffer().str();
  return text;
}

//===----------------------------------------------------------------------===//
// What ptxas says
//===----------------------------------------------------------------------===//

/// The number before `unit` in "..., 40 bytes stack frame, ...", or 0.
static int64_t numberBefore(llvm::StringRef line, llvm::StringRef unit) {
  size_t place = line.find(unit);
  if (place == llvm::StringRef::npos)
    return 0;
  llvm::StringRef before = line.take_front(place).rtrim();
  size_t start = before.find_last_not_of("0123456789");
  int64_t number = 0;
  before.drop_front(start == llvm::StringRef::npos ? 0 : start + 1)
      .getAsInteger(10, number);
  return number;
}

void moira::parsePtxasOutput(llvm::StringRef text, Assembly &assembly) {
  llvm::SmallVector<llvm::StringRef> lines;
  text.split(lines, '\n');
  for (llvm::StringRef line : lines) {
    line = line.trim();
    if (line.contains("warning") || line.contains("Potential Performance Loss"))
      assembly.warnings.push_back(line.str());
    llvm::StringRef name = line;
    if (name.consume_front("ptxas info    : Compiling entry function '")) {
      assembly.kernels.emplace_back();
      assembly.kernels.back().kernel = name.split('\'').first.str();
    }
    if (assembly.kernels.empty())
      continue;
    KernelResources &kernel = assembly.kernels.back();
    if (line.contains("bytes stack frame")) {
      kernel.stackBytes = numberBefore(line, " bytes stack frame");
      kernel.spillStores = numberBefore(line, " bytes spill stores");
      kernel.spillLoads = numberBefore(line, " bytes spill loads");
    } else if (line.contains("Used ")) {
      kernel.registers = numberBefore(line, " registers");
      kernel.barriers = numberBefore(line, " barriers");
      kernel.sharedBytes = numberBefore(line, " bytes smem");
    }
  }
}

/// The first line with an error, or the first at all.
static std::string firstError(llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef> lines;
  text.split(lines, '\n', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef line : lines)
    if (line.contains("error") || line.contains("fatal"))
      return line.trim().str();
  return lines.empty() ? "no message" : lines.front().trim().str();
}

llvm::Expected<Assembly> moira::assemblePTX(llvm::StringRef ptx,
                                            const GPUTarget &target) {
  std::string ptxas = findPtxas();
  if (ptxas.empty())
    return llvm::createStringError(
        "expected ptxas on PATH or in /usr/local/cuda/bin, got none");
  llvm::SmallString<128> input, output, log;
  for (auto [path, suffix] :
       {std::pair(&input, "ptx"), std::pair(&output, "cubin"),
        std::pair(&log, "txt")})
    if (std::error_code error =
            llvm::sys::fs::createTemporaryFile("moira", suffix, *path))
      return llvm::createStringError(error, "expected a temporary file, got '" +
                                                error.message() + "'");
  llvm::FileRemover removeInput(input), removeOutput(output), removeLog(log);
  {
    std::error_code error;
    llvm::raw_fd_ostream stream(input, error);
    if (!error)
      stream << ptx;
    stream.close();
    if (error || stream.has_error()) {
      stream.clear_error();
      return llvm::createStringError(input + ": expected to write, got an "
                                             "error");
    }
  }
  std::string message;
  std::string arch = "-arch=" + target.chip;
  int code = runPtxas(ptxas, {"-v", arch, input, "-o", output}, log, message);
  auto text = llvm::MemoryBuffer::getFile(log);
  llvm::StringRef said = text ? (*text)->getBuffer() : llvm::StringRef();
  if (code != 0)
    return llvm::createStringError(
        ptxas + ": expected to assemble, got '" +
        (message.empty() ? firstError(said) : message) + "'");
  auto cubin = llvm::MemoryBuffer::getFile(output, /*IsText=*/false,
                                           /*RequiresNullTerminator=*/false,
                                           /*IsVolatile=*/true);
  if (!cubin)
    return llvm::createStringError(cubin.getError(),
                                   output + ": expected to read, got '" +
                                       cubin.getError().message() + "'");
  Assembly assembly;
  assembly.cubin = std::move(*cubin);
  parsePtxasOutput(said, assembly);
  return assembly;
}
