// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/Program.h"

#include "session/HostCode.h"

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

Status Program::link(Manifest manifest, const Resolver &resolve,
                     std::shared_ptr<const void> codeOwner,
                     std::string_view packedParameters) {
  for (const EntrySpec &entry : manifest.entries) {
    std::vector<VariantCode> variants;
    for (const VariantSpec &variant : entry.variants) {
      VariantCode code{};
      MOIRA_RETURN_IF_ERROR(resolveSymbol(resolve, variant.step, code.step));
      MOIRA_RETURN_IF_ERROR(
          resolveSymbol(resolve, variant.workspace, code.workspace));
      if (!variant.shapes.empty())
        MOIRA_RETURN_IF_ERROR(
            resolveSymbol(resolve, variant.shapes, code.shapes));
      variants.push_back(code);
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
Program::load(std::shared_ptr<const BundleFile> bundle) {
  const BundleContents &contents = bundle->contents();
  Result<Manifest> manifest = Manifest::parse(contents.manifest);
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
  program->text = contents.manifest;
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
