// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks and times the kernels of a folder that scripts/gpu-check has made, on
// a machine that has neither the compiler nor LLVM: one line of JSON per case.

#include "Run.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;
using std::chrono::steady_clock;

namespace {
struct Options {
  std::string mode, folder, device = "cuda", checks = "bounds", only;
  bool small = false, graphs = false;
  int runs = 20, warmUps = 5;
  double seconds = 0; ///< after which no case begins; 0: never
};
} // namespace

static const char usage[] =
    "usage: moira-gpu-check conformance|measure|device FOLDER\n"
    "         [--device=cuda|emulated] [--check=LIST] [--small] [--graphs]\n"
    "         [--only=NAME] [--runs=N] [--warm-ups=N] [--seconds=S]\n";

/// Whether an argument is `--name=`, whose value follows.
static bool readText(const char *argument, const char *name,
                     std::string &value) {
  size_t length = strlen(name);
  if (strncmp(argument, name, length) != 0 || argument[length] != '=')
    return false;
  value = argument + length + 1;
  return true;
}

/// A number of 1 or more that is all of a text.
static bool readCount(const std::string &text, int &value) {
  char *end = nullptr;
  long parsed = strtol(text.c_str(), &end, 10);
  value = static_cast<int>(parsed);
  return !text.empty() && !*end && parsed >= 1 && parsed <= 1000000;
}

static Result<Options> readOptions(int argc, char **argv) {
  Options options;
  std::vector<std::string> places;
  for (int i = 1; i < argc; ++i) {
    std::string text;
    int seconds = 0;
    auto refuse = [&](const char *expected) {
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat(argv[i], ": expected ", expected, ", got another"));
    };
    if (readText(argv[i], "--device", options.device)) {
      if (options.device != "cuda" && options.device != "emulated")
        return refuse("cuda or emulated");
    } else if (readText(argv[i], "--check", options.checks)) {
      emulator::Checks checks;
      if (!emulator::parseChecks(options.checks, checks))
        return refuse("a list of race, bounds, uninit, sync, counters, or all");
    } else if (readText(argv[i], "--runs", text)) {
      if (!readCount(text, options.runs))
        return refuse("a number of 1 or more");
    } else if (readText(argv[i], "--warm-ups", text)) {
      if (!readCount(text, options.warmUps))
        return refuse("a number of 1 or more");
    } else if (readText(argv[i], "--seconds", text)) {
      if (!readCount(text, seconds))
        return refuse("a number of 1 or more");
      options.seconds = seconds;
    } else if (!strcmp(argv[i], "--small")) {
      options.small = true;
    } else if (!strcmp(argv[i], "--graphs")) {
      options.graphs = true;
    } else if (!readText(argv[i], "--only", options.only)) {
      if (argv[i][0] == '-')
        return refuse("an option");
      places.push_back(argv[i]);
    }
  }
  if (places.size() != 2 || (places[0] != "conformance" &&
                             places[0] != "measure" && places[0] != "device"))
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("expected conformance, measure or device, and a "
                         "folder, got ",
                         places.size(), " arguments\n", usage));
  options.mode = places[0];
  options.folder = places[1];
  return options;
}

static void print(const nlohmann::ordered_json &line) {
  // Names come from files: they may be no Unicode.
  std::puts(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                .c_str());
  std::fflush(stdout);
}

static OpenDevice opener(const Options &options) {
  auto opened = std::make_shared<std::shared_ptr<Device>>();
  return [=](std::string arch) -> Result<std::shared_ptr<Device>> {
    if (options.device == "emulated") {
      EmulatedOptions emulated;
      (void)emulator::parseChecks(options.checks, emulated.checks);
      emulated.architecture = arch == "sm_80" ? 80 : 90;
      std::shared_ptr<Device> device = openEmulated(emulated);
      device->keepGraphs(options.graphs);
      return device;
    }
    if (!*opened) {
      auto device = openCuda();
      if (!device.ok())
        return device.status();
      *opened = std::shared_ptr<Device>(std::move(*device));
      (*opened)->keepGraphs(options.graphs);
    }
    return *opened;
  };
}

/// How many have failed.
static int checkAll(const Options &options, const Cases &cases) {
  auto start = steady_clock::now();
  int failures = 0;
  for (const ConformanceCase &check : cases.conformance) {
    if ((options.small && !check.small) ||
        (!options.only.empty() && check.name != options.only))
      continue;
    auto begun = steady_clock::now();
    Outcome outcome;
    if (options.seconds > 0 &&
        std::chrono::duration<double>(begun - start).count() >
            options.seconds) {
      outcome.state = "skipped";
      outcome.detail = "no time left";
    } else {
      outcome = checkCase(check, opener(options));
    }
    failures += outcome.state == "failed";
    print(
        {{"case", check.name},
         {"arch", check.arch},
         {"state", outcome.state},
         {"detail", outcome.detail},
         {"exact", check.exact},
         {"elements", outcome.elements},
         {"identical", outcome.identical},
         {"max_relative_error", outcome.maxRelative},
         {"launches", outcome.launches},
         {"seconds",
          std::chrono::duration<double>(steady_clock::now() - begun).count()}});
  }
  return failures;
}

static int measureAll(const Options &options, const Cases &cases) {
  auto start = steady_clock::now();
  int failures = 0;
  for (const MeasuredCase &measured : cases.measured) {
    if (!options.only.empty() && measured.name != options.only)
      continue;
    nlohmann::ordered_json line = {{"measured", measured.name}};
    if (options.seconds > 0 &&
        std::chrono::duration<double>(steady_clock::now() - start).count() >
            options.seconds) {
      line["skipped"] = "no time left";
      print(line);
      continue;
    }
    auto timing =
        measureCase(measured, options.warmUps, options.runs, opener(options));
    if (!timing.ok()) {
      ++failures;
      line["error"] = timing.status().message;
      print(line);
      continue;
    }
    line["median_seconds"] = timing->median;
    line["least_seconds"] = timing->least;
    line["runs"] = timing->runs;
    line["launches"] = timing->launches;
    line["waits"] = timing->waits;
    if (timing->mostRows > 0)
      line["most_rows_of_an_expert"] = timing->mostRows;
    if (measured.flops > 0 && timing->median > 0)
      line["tflops"] = measured.flops / timing->median * 1e-12;
    if (measured.bytes > 0 && timing->median > 0)
      line["terabytes_per_second"] = measured.bytes / timing->median * 1e-12;
    print(line);
  }
  return failures;
}

int main(int argc, char **argv) {
  auto fail = [](const Status &status) {
    std::fprintf(stderr, "moira-gpu-check: error: %s\n",
                 status.message.c_str());
    return 2;
  };
  Result<Options> options = readOptions(argc, argv);
  if (!options.ok())
    return fail(options.status());
  if (options->mode == "device") {
    auto device = opener(*options)("");
    if (!device.ok())
      return fail(device.status());
    print({{"device", (*device)->name()},
           {"kind", (*device)->kind()},
           {"architecture", (*device)->architecture()},
           {"processors", (*device)->processors()}});
    return 0;
  }
  Result<Cases> cases = readCases(options->folder);
  if (!cases.ok())
    return fail(cases.status());
  int failures = options->mode == "measure" ? measureAll(*options, *cases)
                                            : checkAll(*options, *cases);
  return failures ? 1 : 0;
}
