// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "LoadedObject.h"

#include "DebugSymbols.h"
#include "moira/Target/Link.h"

#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/ExecutionEngine/Orc/SelfExecutorProcessControl.h"

#include <mutex>
#include <vector>

using namespace moira;
namespace orc = llvm::orc;

namespace {
/// Defines what the system's libraries have.
class SystemSymbols : public orc::DefinitionGenerator {
public:
  llvm::Error tryToGenerate(orc::LookupState &state, orc::LookupKind kind,
                            orc::JITDylib &library,
                            orc::JITDylibLookupFlags flags,
                            const orc::SymbolLookupSet &wanted) override {
    orc::SymbolMap found;
    for (const auto &symbol : wanted)
      if (void *address =
              SystemLibraries::get().find((*symbol.first).str().c_str()))
        found[symbol.first] = {orc::ExecutorAddr::fromPtr(address),
                               llvm::JITSymbolFlags::Exported};
    if (found.empty())
      return llvm::Error::success();
    return library.define(orc::absoluteSymbols(std::move(found)));
  }
};
} // namespace

LoadedObject::LoadedObject() = default;

LoadedObject::~LoadedObject() {
  if (session)
    llvm::consumeError(session->endSession());
}

llvm::Error LoadedObject::open(std::unique_ptr<llvm::MemoryBuffer> object,
                               llvm::ArrayRef<std::string> symbols,
                               const JitSymbols &shown) {
  // Without a thread pool: one object is linked by who asks for it.
  auto control = orc::SelfExecutorProcessControl::Create(
      nullptr, std::make_unique<orc::InPlaceTaskDispatcher>());
  if (!control)
    return control.takeError();
  session = std::make_unique<orc::ExecutionSession>(std::move(*control));
  // What goes wrong comes back from the lookup; the first report says why.
  std::string reported;
  session->setErrorReporter([&reported](llvm::Error error) {
    std::string text = llvm::toString(std::move(error));
    if (reported.empty())
      reported = std::move(text);
  });
  layer = std::make_unique<orc::ObjectLinkingLayer>(*session);
  auto forget = [&](llvm::Error error) {
    session->setErrorReporter(
        [](llvm::Error late) { llvm::consumeError(std::move(late)); });
    return error;
  };

  if (llvm::Error error = addSymbols(*session, *layer, shown))
    return forget(std::move(error));
  llvm::Expected<orc::JITDylib &> library = session->createJITDylib("program");
  if (!library)
    return forget(library.takeError());
  library->addGenerator(std::make_unique<SystemSymbols>());
  if (llvm::Error error = layer->add(*library, std::move(object)))
    return forget(std::move(error));
  orc::SymbolLookupSet wanted;
  for (const std::string &symbol : symbols)
    wanted.add(session->intern(symbol));
  // A manifest may name one function several times.
  wanted.sortByAddress();
  wanted.removeDuplicates();
  llvm::Expected<orc::SymbolMap> found =
      session->lookup({{&*library, orc::JITDylibLookupFlags::MatchAllSymbols}},
                      std::move(wanted));
  if (!found) {
    std::string text = llvm::toString(found.takeError());
    return forget(llvm::createStringError(reported.empty() ? text : reported));
  }
  for (const auto &entry : *found)
    addresses[*entry.first] = entry.second.getAddress().toPtr<void *>();
  return forget(llvm::Error::success());
}

/// Debuggers are never told that code has gone (LLVM's plug-in has no way to),
/// so what they know of stays until the process ends.
static void keepForever(std::shared_ptr<LoadedObject> object) {
  static std::mutex mutex;
  static auto *kept = new std::vector<std::shared_ptr<LoadedObject>>();
  std::lock_guard<std::mutex> lock(mutex);
  kept->push_back(std::move(object));
}

llvm::Expected<std::shared_ptr<LoadedObject>>
LoadedObject::load(std::unique_ptr<llvm::MemoryBuffer> object,
                   llvm::ArrayRef<std::string> symbols,
                   const JitSymbols &shown) {
  std::shared_ptr<LoadedObject> loaded(new LoadedObject());
  if (llvm::Error error = loaded->open(std::move(object), symbols, shown))
    return error;
  if (shown.gdb)
    keepForever(loaded);
  return loaded;
}
