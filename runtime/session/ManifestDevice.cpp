// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/ManifestDevice.h"

#include "moira/device_abi.h"

using namespace moira;
using namespace moira::runtime;

/// Reads [offset, bytes] of the GPU code.
static CodeRange readRange(const Reader &json, const char *key) {
  CodeRange range;
  if (!json.has(key))
    return range;
  std::vector<Reader> items = json.at(key).items();
  json.at(key).require(
      items.size() == 2,
      concat("expected offset and bytes, got ", items.size(), " numbers"));
  if (items.size() == 2)
    range = {items[0].integer(0), items[1].integer(0)};
  return range;
}

static ImageSpec readImage(const Reader &json) {
  ImageSpec image;
  image.name = json.at("name").word();
  image.arch = json.at("arch").word();
  image.emulated = json.textOr("emulated");
  image.ptx = readRange(json, "ptx");
  image.cubin = readRange(json, "cubin");
  return image;
}

static KernelSpec readKernel(const Reader &json, size_t images) {
  KernelSpec kernel;
  kernel.name = json.at("name").word();
  kernel.image = json.at("image").small(0);
  json.at("image").require(
      size_t(kernel.image) < images,
      concat("expected one of ", images, " images, got ", kernel.image));
  kernel.threads = json.at("threads").small(1);
  json.at("threads").require(
      kernel.threads <= 1024,
      concat("expected at most 1024 threads, got ", kernel.threads));
  kernel.shared = json.at("shared").small(0);
  for (const Reader &item : json.at("parameters").items())
    kernel.parameters.push_back(item.small(1));
  return kernel;
}

DeviceSpec runtime::readDevice(const Reader &json) {
  DeviceSpec device;
  int64_t abi = json.at("abi").integer(0);
  json.at("abi").require(
      abi == int64_t(MOIRA_DEVICE_ABI_VERSION),
      concat("expected version ", MOIRA_DEVICE_ABI_VERSION, ", got ", abi));
  device.abi = MOIRA_DEVICE_ABI_VERSION;
  for (const Reader &item : json.at("images").items())
    device.images.push_back(readImage(item));
  for (const Reader &item : json.at("kernels").items())
    device.kernels.push_back(readKernel(item, device.images.size()));
  return device;
}

Json runtime::deviceToJson(const DeviceSpec &device) {
  Json json = {{"abi", device.abi},
               {"images", Json::array()},
               {"kernels", Json::array()}};
  for (const ImageSpec &image : device.images) {
    Json &item = json["images"].emplace_back();
    item = {{"name", image.name}, {"arch", image.arch}};
    if (!image.emulated.empty())
      item["emulated"] = image.emulated;
    if (image.ptx.bytes > 0)
      item["ptx"] = {image.ptx.offset, image.ptx.bytes};
    if (image.cubin.bytes > 0)
      item["cubin"] = {image.cubin.offset, image.cubin.bytes};
  }
  for (const KernelSpec &kernel : device.kernels)
    json["kernels"].push_back({{"name", kernel.name},
                               {"image", kernel.image},
                               {"threads", kernel.threads},
                               {"shared", kernel.shared},
                               {"parameters", kernel.parameters}});
  return json;
}
