// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program ready to run: its manifest and the addresses of its functions. A
// bundle gives one, and so does a JIT, without any file.

#ifndef MOIRA_RUNTIME_SESSION_PROGRAM_H
#define MOIRA_RUNTIME_SESSION_PROGRAM_H

#include "session/BundleFile.h"
#include "session/Manifest.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace moira::runtime {

/// Immutable once made; any number of sessions and threads share one.
class Program {
public:
  /// Returns the address of a symbol, or nullptr.
  using Resolver = std::function<void *(const char *symbol)>;

  /// A program from parts. Every symbol of the manifest is looked up here, so
  /// `resolve` is not kept. `owner` (may be null) lives as long as the
  /// program and keeps the code in memory. `packedParameters` (may be empty)
  /// must live as long as `owner`; `gpuCode` is copied. Fails with
  /// MOIRA_NOT_FOUND where a symbol is missing.
  static Result<std::shared_ptr<const Program>>
  create(Manifest manifest, const Resolver &resolve,
         std::shared_ptr<const void> owner = nullptr,
         std::string_view packedParameters = {}, std::string_view gpuCode = {});

  /// Loads the code of a verified bundle, after checking that this machine
  /// can run it (MOIRA_UNAVAILABLE if not): the grid for `ranks` ranks; 0: the
  /// only one.
  static Result<std::shared_ptr<const Program>>
  load(std::shared_ptr<const BundleFile> bundle, int32_t ranks = 0);

  const Manifest &manifest() const { return description; }
  /// An entry as a variant has it: Manifest::signature, which lasts.
  const EntrySpec &signature(int entry, int variant) const {
    const auto &own = entries[entry][variant].signature;
    return own ? *own : description.entries[entry];
  }
  /// The manifest as JSON: the bundle's own text where that has one grid.
  const std::string &manifestText() const { return text; }

  moira_step_entry step(int entry, int variant) const {
    return entries[entry][variant].step;
  }
  moira_workspace_entry workspace(int entry, int variant) const {
    return entries[entry][variant].workspace;
  }
  /// Null where the variant has none.
  moira_shapes_entry shapes(int entry, int variant) const {
    return entries[entry][variant].shapes;
  }
  moira_pack_entry pack(int parameter) const { return packs[parameter]; }

  /// The packed bytes of a parameter that came with the program, or nullptr.
  const void *packedParameter(int parameter) const {
    return packed.empty() ? nullptr : packed[parameter];
  }

  /// The kernels of an image: the address of a moira_emu_module, null where
  /// there is none, and a part of the GPU code.
  const void *emulatedImage(int image) const { return images[image]; }
  std::string_view gpuCode(const CodeRange &range) const {
    return std::string_view(code).substr(range.offset, range.bytes);
  }

private:
  Program() = default;
  Status linkDevice(const DeviceSpec &device, const Resolver &resolve,
                    std::string_view gpuCode);
  Status link(Manifest manifest, const Resolver &resolve,
              std::shared_ptr<const void> owner,
              std::string_view packedParameters);

  struct VariantCode {
    moira_step_entry step;
    moira_workspace_entry workspace;
    moira_shapes_entry shapes;
    /// Where it differs from the entry.
    std::unique_ptr<EntrySpec> signature;
  };

  Manifest description;
  std::string text;
  std::vector<std::vector<VariantCode>> entries;
  std::vector<moira_pack_entry> packs;
  std::vector<const void *> packed;
  std::vector<const void *> images; ///< of the emulated device, or null
  std::string code;                 ///< of kernels
  std::shared_ptr<const void> owner;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_PROGRAM_H
