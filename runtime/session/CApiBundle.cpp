// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moira/runtime.h: the library and bundles.

#include "session/CApiSupport.h"
#include "session/Dlpack.h"

using namespace moira;
using namespace moira::runtime;

static thread_local std::string lastMessage;

int32_t runtime::reportStatus(const Status &status) {
  if (!status.ok())
    lastMessage = status.message;
  return status.code;
}

moira_bundle *runtime::wrapProgram(std::shared_ptr<const Program> program) {
  auto grids = std::make_shared<BundleGrids>(program);
  return new moira_bundle{std::move(grids), std::move(program)};
}

//===----------------------------------------------------------------------===//
// The library
//===----------------------------------------------------------------------===//

const char *moira_version(void) { return MOIRA_VERSION_TEXT; }
uint32_t moira_abi_version(void) { return MOIRA_ABI_VERSION; }
const char *moira_error_message(void) { return lastMessage.c_str(); }
const char *moira_status_name(int32_t code) { return statusName(code); }

//===----------------------------------------------------------------------===//
// Bundles
//===----------------------------------------------------------------------===//

static std::string listOf(const std::vector<int32_t> &numbers) {
  std::string text;
  for (int32_t number : numbers)
    text += concat(text.empty() ? "" : ", ", number);
  return text;
}

static Status openBundle(Result<std::shared_ptr<const BundleFile>> file,
                         moira_bundle **bundle) {
  if (!file.ok())
    return file.status();
  Result<std::shared_ptr<BundleGrids>> grids = BundleGrids::open(*file);
  if (!grids.ok())
    return grids.status();
  *bundle = new moira_bundle{*grids, (*grids)->first()};
  return Status();
}

int32_t moira_bundle_open(const char *path, moira_bundle **bundle) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(path);
    MOIRA_REQUIRE(bundle);
    Result<std::shared_ptr<const BundleFile>> file = BundleFile::open(path);
    if (!file.ok()) // names the path already
      return file.status();
    return openBundle(std::move(file), bundle).within(path);
  });
}

int32_t moira_bundle_open_memory(const void *data, size_t bytes,
                                 moira_bundle **bundle) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(data);
    MOIRA_REQUIRE(bundle);
    return openBundle(BundleFile::read(data, bytes), bundle);
  });
}

void moira_bundle_close(moira_bundle *bundle) { delete bundle; }

int32_t moira_bundle_grid(const moira_bundle *bundle, int32_t index,
                          int32_t *ranks) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(bundle);
    MOIRA_REQUIRE(ranks);
    const std::vector<int32_t> &list = bundle->grids->ranks();
    if (index < 0 || index >= static_cast<int64_t>(list.size()))
      return Status(
          MOIRA_INVALID_ARGUMENT,
          concat("expected a grid below ", list.size(), ", got ", index));
    *ranks = list[index];
    return Status();
  });
}

int32_t moira_bundle_for_ranks(const moira_bundle *bundle, int32_t ranks,
                               moira_bundle **grid) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(bundle);
    MOIRA_REQUIRE(grid);
    const std::vector<int32_t> &list = bundle->grids->ranks();
    if (std::find(list.begin(), list.end(), ranks) == list.end())
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("expected a grid of the bundle (", listOf(list),
                           " ranks), got ", ranks));
    Result<std::shared_ptr<const Program>> program =
        bundle->grids->forRanks(ranks);
    if (!program.ok())
      return program.status();
    *grid = new moira_bundle{bundle->grids, *program};
    return Status();
  });
}

int32_t moira_bundle_manifest(const moira_bundle *bundle, const char **json) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(bundle);
    MOIRA_REQUIRE(json);
    *json = bundle->program->manifestText().c_str();
    return Status();
  });
}

Result<const EntrySpec *> moira::runtime::entryAt(const moira_bundle *bundle,
                                                  int32_t index) {
  MOIRA_REQUIRE(bundle);
  const std::vector<EntrySpec> &entries = bundle->program->manifest().entries;
  if (index < 0 || index >= static_cast<int64_t>(entries.size()))
    return Status(
        MOIRA_INVALID_ARGUMENT,
        concat("expected an entry below ", entries.size(), ", got ", index));
  return &entries[index];
}

int32_t moira_bundle_entry(const moira_bundle *bundle, int32_t entry,
                           moira_entry_info *info) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(info);
    Result<const EntrySpec *> spec = entryAt(bundle, entry);
    if (!spec.ok())
      return spec.status();
    moira_entry_info value{};
    value.name = (*spec)->name.c_str();
    value.inputs = static_cast<int32_t>((*spec)->inputs.size());
    value.results = static_cast<int32_t>((*spec)->results.size());
    value.variants = static_cast<int32_t>((*spec)->variants.size());
    value.ranks = (*spec)->ranks;
    return writeStruct(value, info);
  });
}

static Status writeTensor(const std::vector<TensorSpec> &tensors, int32_t index,
                          moira_tensor_info *info) {
  if (index < 0 || index >= static_cast<int64_t>(tensors.size()))
    return Status(
        MOIRA_INVALID_ARGUMENT,
        concat("expected a tensor below ", tensors.size(), ", got ", index));
  const TensorSpec &spec = tensors[index];
  moira_tensor_info value{};
  value.name = spec.name.c_str();
  value.dtype = static_cast<int32_t>(spec.dtype);
  value.dlpack = dlpackType(spec.dtype);
  value.rank = static_cast<int32_t>(spec.shape.size());
  value.shape = spec.shape.data();
  return writeStruct(value, info);
}

int32_t moira_bundle_input(const moira_bundle *bundle, int32_t entry,
                           int32_t input, moira_tensor_info *info) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(info);
    Result<const EntrySpec *> spec = entryAt(bundle, entry);
    return spec.ok() ? writeTensor((*spec)->inputs, input, info)
                     : spec.status();
  });
}

int32_t moira_bundle_result(const moira_bundle *bundle, int32_t entry,
                            int32_t result, moira_tensor_info *info) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(info);
    Result<const EntrySpec *> spec = entryAt(bundle, entry);
    return spec.ok() ? writeTensor((*spec)->results, result, info)
                     : spec.status();
  });
}

int32_t moira_bundle_variant(const moira_bundle *bundle, int32_t entry,
                             int32_t variant, const char **name) {
  return guarded([&]() -> Status {
    MOIRA_REQUIRE(name);
    Result<const EntrySpec *> spec = entryAt(bundle, entry);
    if (!spec.ok())
      return spec.status();
    const std::vector<VariantSpec> &variants = (*spec)->variants;
    if (variant < 0 || variant >= static_cast<int64_t>(variants.size()))
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("expected a variant below ", variants.size(),
                           ", got ", variant));
    *name = variants[variant].name.c_str();
    return Status();
  });
}
