// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Serve.h"

#include "Generate.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <thread>
#include <unistd.h>

using namespace moira::bench;
using nlohmann::json;
using std::chrono::steady_clock;

/// More than any cache holds.
static constexpr size_t evictBytes = size_t(96) << 20;

double moira::bench::largestError(const Case &what, const Output &result,
                                  const float *reference) {
  double worst = 0;
  int64_t columns = what.resultColumns();
  for (int64_t row = 0; row < what.resultRows(); ++row) {
    const float *expected = reference + row * columns;
    float scale = 0, error = 0;
    bool broken = false;
    for (int64_t i = 0; i < columns; ++i) {
      int64_t at = row * columns + i;
      float value = result.isBf16
                        ? fromBf16(static_cast<uint16_t *>(result.data)[at])
                        : static_cast<float *>(result.data)[at];
      scale = std::max(scale, std::fabs(expected[i]));
      error = std::max(error, std::fabs(value - expected[i]));
      broken |= !(std::fabs(value - expected[i]) < 1e30f);
    }
    if (broken || (scale == 0 && error != 0))
      return 1e30;
    worst = std::max(worst, scale > 0 ? double(error) / scale : 0.0);
  }
  return worst;
}

namespace {
class Server {
public:
  explicit Server(Implementation &implementation) : made(implementation) {}
  json answer(const json &message);

private:
  json prepare(const json &message);
  json run(const json &message);
  json check(int mode);
  void evict();
  double timed(int mode);

  Implementation &made;
  Case what;
  DataFile file;
  Buffer trash;
};
} // namespace

static Case readCase(const json &from) {
  Case what;
  what.name = from["name"];
  what.part = from["part"];
  what.dtype = from["dtype"];
  what.file = from["file"];
  what.threads = from["cores"];
  what.hidden = from["hidden"];
  what.width = from["width"];
  what.gated = from["gated"];
  what.sizes = from["sizes"].get<std::vector<int32_t>>();
  what.tokens = from["tokens"];
  what.topK = from["top_k"];
  return what;
}

json Server::prepare(const json &message) {
  what = readCase(message["case"]);
  std::vector<std::string> modes;
  std::string error;
  if (!what.file.empty())
    error = file.open(what.file);
  if (error.empty())
    error = made.prepare(what, file, modes);
  json reply = {{"modes", modes}};
  if (!error.empty())
    reply["error"] = error;
  for (auto &[name, value] : made.facts())
    reply["facts"][name] = value;
  return reply;
}

/// Brings other bytes into the caches; reads only, so that nothing is left to
/// be written back while the clock runs.
void Server::evict() {
  if (trash.bytes() == 0)
    trash = Buffer(evictBytes);
  auto *words = trash.as<const volatile uint64_t>();
  for (size_t i = 0; i < evictBytes / 8; i += 8)
    (void)words[i];
}

double Server::timed(int mode) {
  auto start = steady_clock::now();
  made.run(mode);
  return std::chrono::duration<double, std::nano>(steady_clock::now() - start)
      .count();
}

/// `repeat` calls, with a first one that does not count where they are short.
json Server::run(const json &message) {
  int mode = message["mode"];
  int repeat = message["repeat"];
  bool cold = message["evict"];
  std::vector<double> times;
  if (repeat > 1)
    timed(mode);
  for (int i = 0; i < repeat; ++i) {
    if (cold)
      evict();
    times.push_back(timed(mode));
  }
  json reply = {{"ns", times}};
  if (double work = made.work(mode))
    reply["work"] = work;
  for (auto &[name, value] : made.facts())
    reply["facts"][name] = value;
  return reply;
}

json Server::check(int mode) {
  auto *reference = static_cast<const float *>(file.find("reference"));
  Output output = made.output(mode);
  if (!reference || !output.data)
    return {{"error", 0.0}};
  // What a run does not write must show.
  std::memset(output.data, 0xff,
              what.resultRows() * what.resultColumns() *
                  (output.isBf16 ? 2 : 4));
  made.run(mode);
  return {{"error", largestError(what, output, reference)}};
}

json Server::answer(const json &message) {
  std::string order = message["do"];
  if (order == "version")
    return {{"version", made.version()}};
  if (order == "generate") {
    std::string error = generate(readCase(message["case"]));
    return error.empty() ? json::object() : json{{"error", error}};
  }
  if (order == "prepare")
    return prepare(message);
  if (order == "run")
    return run(message);
  if (order == "check")
    return check(message["mode"]);
  if (order == "release") {
    made.release();
    file.close();
    return json::object();
  }
  return {{"error", "expected an order, got '" + order + "'"}};
}

int moira::bench::serve(Implementation &implementation) {
  // Libraries print to stdout; only answers may reach the coordinator.
  int channel = dup(STDOUT_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  Server server(implementation);
  for (std::string line; std::getline(std::cin, line);) {
    json message = json::parse(line);
    if (message["do"] == "quit")
      break;
    std::string text = server.answer(message).dump() + "\n";
    for (size_t done = 0; done < text.size();) {
      ssize_t count = write(channel, text.data() + done, text.size() - done);
      if (count <= 0)
        return 1;
      done += count;
    }
  }
  return 0;
}
