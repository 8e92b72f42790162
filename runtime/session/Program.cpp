// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/Program.h"

#include "session/HostCode.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

template <typename Function>
static Status resolveSymbol(const Program::Resolver &resolve,
                            const std::string &symbol, Function &function) {
  void *address = resolve(symbol.c_str());
  if (!address)
    return Status(MOIRA_NOT_FOUND, concat("expected symbol '", symbol,
                                          "' in the program's code, got none"));
  function = reinterpret_cast<Function>(address);
  return Status();
}

/// Finds the packed bytes of each parameter.
static Status placePacked(const Manifest &manifest, std::string_view bytes,
                          std::vector<const void *> &packed) {
  uint64_t offset = 0;
  for (const ParameterSpec &parameter : manifest.parameters) {
    if (parameter.placement)
      return Status(MOIRA_DATA_LOSS,
                    concat("parameter '", parameter.name,
                           "': expected no packed bytes where ranks hold "
                           "different shards, got some"));
    offset = (offset + packedAlignment - 1) & -uint64_t(packedAlignment);
    uint64_t size = parameter.packedBytes();
    if (offset > bytes.size() || size > bytes.size() - offset)
      return Status(MOIRA_DATA_LOSS,
                    concat("parameter '", parameter.name, "': expected ", size,
                           " packed bytes at ", offset, ", got a section of ",
                           bytes.size(), " bytes"));
    packed.push_back(bytes.data() + offset);
    offset += size;
  }
  if (offset != bytes.size())
    return Status(MOIRA_DATA_LOSS, concat("expected ", offset,
                                          " bytes of packed parameters, "
                                          "got ",
                                          bytes.size()));
  return Status();
}

Status Program::linkDevice(const DeviceSpec &device, const Resolver &resolve,
                           std::string_view gpuCode) {
  auto isInside = [&](const CodeRange &range) {
    uint64_t all = gpuCode.size();
    return uint64_t(range.offset) <= all &&
           uint64_t(range.bytes) <= all - uint64_t(range.offset);
  };
  for (const ImageSpec &image : device.images) {
    if (!isInside(image.ptx) || !isInside(image.cubin))
      return Status(MOIRA_DATA_LOSS,
                    concat("image '", image.name,
                           "': expected its code within ", gpuCode.size(),
                           " bytes of GPU code, got a place outside"));
    void *address = nullptr;
    if (!image.emulated.empty())
      MOIRA_RETURN_IF_ERROR(resolveSymbol(resolve, image.emulated, address));
    images.push_back(address);
  }
  code = gpuCode;
  return Status();
}

/// Whether steps take and give the same tensors.
static bool hasTensorsOf(const EntrySpec &a, const EntrySpec &b) {
  auto same = [](const std::vector<TensorSpec> &x,
                 const std::vector<TensorSpec> &y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [](const TensorSpec &s, const TensorSpec &t) {
                        return s.dtype == t.dtype && s.shape == t.shape;
                      });
  };
  return same(a.inputs, b.inputs) && same(a.results, b.results);
}

Status Program::link(Manifest manifest, const Resolver &resolve,
                     std::shared_ptr<const void> codeOwner,
                     std::string_view packedParameters) {
  for (size_t e = 0; e < manifest.entries.size(); ++e) {
    const EntrySpec &entry = manifest.entries[e];
    std::vector<VariantCode> variants;
    for (size_t v = 0; v < entry.variants.size(); ++v) {
      const VariantSpec &variant = entry.variants[v];
      VariantCode code{};
      MOIRA_RETURN_IF_ERROR(resolveSymbol(resolve, variant.step, code.step));
      MOIRA_RETURN_IF_ERROR(
          resolveSymbol(resolve, variant.workspace, code.workspace));
      if (!variant.shapes.empty())
        MOIRA_RETURN_IF_ERROR(
            resolveSymbol(resolve, variant.shapes, code.shapes));
      EntrySpec signature = manifest.signature(int(e), int(v));
      if (!hasTensorsOf(signature, entry))
        code.signature = std::make_unique<EntrySpec>(std::move(signature));
      variants.push_back(std::move(code));
    }
    entries.push_back(std::move(variants));
  }
  for (const ParameterSpec &parameter : manifest.parameters) {
    moira_pack_entry pack = nullptr;
    MOIRA_RETURN_IF_ERROR(resolveSymbol(resolve, parameter.pack, pack));
    packs.push_back(pack);
  }
  if (!packedParameters.empty())
    MOIRA_RETURN_IF_ERROR(placePacked(manifest, packedParameters, packed));
  description = std::move(manifest);
  owner = std::move(codeOwner);
  return Status();
}

Result<std::shared_ptr<const Program>>
Program::create(Manifest manifest, const Resolver &resolve,
                std::shared_ptr<const void> owner,
                std::string_view packedParameters, std::string_view gpuCode) {
  std::shared_ptr<Program> program(new Program());
  program->text = manifest.serialize();
  if (manifest.device)
    MOIRA_RETURN_IF_ERROR(
        program->linkDevice(*manifest.device, resolve, gpuCode));
  MOIRA_RETURN_IF_ERROR(program->link(std::move(manifest), resolve,
                                      std::move(owner), packedParameters));
  return std::shared_ptr<const Program>(std::move(program));
}

namespace {
/// What a program from a bundle keeps alive.
struct LoadedBundle {
  std::shared_ptr<HostCode> code;
  std::shared_ptr<const BundleFile> bundle;
};
} // namespace

Result<std::shared_ptr<const Program>>
Program::load(std::shared_ptr<const BundleFile> bundle, int32_t ranks) {
  const BundleContents &contents = bundle->contents();
  Result<Manifest> manifest = Manifest::parse(contents.manifest, ranks);
  if (!manifest.ok())
    return manifest.status();
  MOIRA_RETURN_IF_ERROR(checkTarget(manifest->target));
  Result<std::shared_ptr<HostCode>> code = HostCode::load(contents.hostCode);
  if (!code.ok())
    return code.status();

  auto owner = std::make_shared<LoadedBundle>();
  owner->code = *code;
  // Only packed parameters are read again; else the file's memory can go.
  if (!contents.packedParameters.empty())
    owner->bundle = bundle;
  std::shared_ptr<Program> program(new Program());
  Result<std::vector<int32_t>> grids = listGrids(contents.manifest);
  if (!grids.ok())
    return grids.status();
  program->text = grids->size() == 1 ? std::string(contents.manifest)
                                     : manifest->serialize();
  auto resolve = [library = code->get()](const char *symbol) {
    return library->find(symbol);
  };
  if (manifest->device)
    MOIRA_RETURN_IF_ERROR(
        program->linkDevice(*manifest->device, resolve, contents.gpuCode));
  MOIRA_RETURN_IF_ERROR(program->link(std::move(*manifest), resolve, owner,
                                      contents.packedParameters));
  return std::shared_ptr<const Program>(std::move(program));
}
