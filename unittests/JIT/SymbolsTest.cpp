// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What debuggers and perf learn of programs that were compiled in memory.

#include "moira/jit.h"

#include "JIT/TrainingProgram.h"
#include "Runtime/TestFiles.h"

#include "llvm/ExecutionEngine/Orc/TargetProcess/JITLoaderGDB.h"
#include "llvm/Object/ELFObjectFile.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

using namespace moira;
using namespace moira::test;

namespace {

std::shared_ptr<const runtime::Program> compileWith(JitSymbols symbols) {
  JitOptions options;
  options.symbols = symbols;
  return compileProgram(linearProgram("f32"), options);
}

/// Functions of all objects that the debugger's list has: address by name.
std::map<std::string, uint64_t> listedFunctions() {
  std::map<std::string, uint64_t> functions;
  auto *descriptor = static_cast<jit_descriptor *>(
      dlsym(RTLD_DEFAULT, "__jit_debug_descriptor"));
  if (!descriptor)
    return functions;
  for (auto *entry = descriptor->first_entry; entry;
       entry = entry->next_entry) {
    auto object = llvm::object::ObjectFile::createObjectFile(
        llvm::MemoryBufferRef({entry->symfile_addr, entry->symfile_size}, ""));
    if (!object) {
      ADD_FAILURE() << llvm::toString(object.takeError());
      continue;
    }
    for (const llvm::object::SymbolRef &symbol : (*object)->symbols()) {
      if (llvm::cantFail(symbol.getType()) !=
          llvm::object::SymbolRef::ST_Function)
        continue;
      // Sections have the addresses at which their code runs.
      functions[llvm::cantFail(symbol.getName()).str()] =
          llvm::cantFail(symbol.getAddress());
    }
  }
  return functions;
}

uint64_t addressOf(const runtime::Program &program) {
  return reinterpret_cast<uint64_t>(program.step(0, 0));
}
std::string nameOf(const runtime::Program &program) {
  return program.manifest().entries[0].variants[0].step;
}

template <typename Number> Number numberAt(const std::string &text, size_t at) {
  Number number{};
  if (at + sizeof(number) <= text.size())
    std::memcpy(&number, text.data() + at, sizeof(number));
  return number;
}

} // namespace

TEST(JitSymbols, DebuggersSeeFunctions) {
  EXPECT_TRUE(listedFunctions().empty());
  auto quiet = compileWith({});
  EXPECT_TRUE(listedFunctions().empty());
  JitSymbols symbols;
  symbols.gdb = true;
  auto program = compileWith(symbols);
  auto functions = listedFunctions();
  ASSERT_TRUE(functions.count(nameOf(*program)));
  EXPECT_EQ(functions[nameOf(*program)], addressOf(*program));
  // What they know of stays: its memory may not become another's.
  std::string name = nameOf(*program);
  uint64_t address = addressOf(*program);
  program = nullptr;
  functions = listedFunctions();
  EXPECT_EQ(functions[name], address);
}

/// The addresses of functions in a file of perf's jitdump format.
static std::map<std::string, uint64_t> readDump(const std::string &text) {
  std::map<std::string, uint64_t> functions;
  EXPECT_EQ(numberAt<uint32_t>(text, 0), 0x4A695444u); // "JiTD"
  EXPECT_EQ(numberAt<uint32_t>(text, 4), 1u);          // version
  EXPECT_EQ(numberAt<uint32_t>(text, 20), uint32_t(getpid()));
  // Records: kind, bytes, time. Of kind 0, a function: process, thread,
  // address, address of the code, its bytes, its number, and the name.
  size_t at = numberAt<uint32_t>(text, 8);
  while (at + 16 <= text.size()) {
    uint32_t kind = numberAt<uint32_t>(text, at);
    uint32_t bytes = numberAt<uint32_t>(text, at + 4);
    if (kind == 0)
      functions[text.c_str() + at + 56] = numberAt<uint64_t>(text, at + 32);
    if (bytes < 16) {
      ADD_FAILURE() << "expected a record, got " << bytes << " bytes";
      break;
    }
    at += bytes;
  }
  return functions;
}

TEST(JitSymbols, PerfGetsOneFileOfAllPrograms) {
  TestFolder folder;
  setenv("JITDUMPDIR", folder.path("").c_str(), 1);
  JitSymbols symbols;
  symbols.perf = true;
  auto first = compileWith(symbols), second = compileWith(symbols);
  std::vector<std::string> files;
  for (const auto &entry :
       std::filesystem::recursive_directory_iterator(folder.path("")))
    if (entry.is_regular_file())
      files.push_back(entry.path());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(std::filesystem::path(files[0]).filename(),
            "jit-" + std::to_string(getpid()) + ".dump");
  std::string text = readFile(files[0]);
  auto functions = readDump(text);
  // Both have the same names: the later record counts.
  ASSERT_TRUE(functions.count(nameOf(*second)));
  EXPECT_EQ(functions[nameOf(*second)], addressOf(*second));
  EXPECT_NE(addressOf(*first), addressOf(*second));
}
