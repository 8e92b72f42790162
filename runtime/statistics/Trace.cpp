// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "statistics/Trace.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

using namespace moira;
using namespace moira::runtime;

using Json = nlohmann::json;

static Json describe(int rank, const char *what, int thread,
                     const std::string &name) {
  return {{"ph", "M"},
          {"name", what},
          {"pid", rank},
          {"tid", thread},
          {"args", {{"name", name}}}};
}

std::string
moira::runtime::toChromeTrace(const std::vector<TraceEvents> &ranks) {
  double origin = std::numeric_limits<double>::infinity();
  for (const TraceEvents &trace : ranks)
    for (const TraceEvent &event : trace.events)
      origin = std::min(origin, event.begin);
  auto micro = [&](double seconds) { return (seconds - origin) * 1e6; };

  Json list = Json::array();
  for (const TraceEvents &trace : ranks) {
    list.push_back(describe(trace.rank, "process_name", 0,
                            "rank " + std::to_string(trace.rank)));
    list.push_back(describe(trace.rank, "thread_name", 0, "compute"));
    list.push_back(describe(trace.rank, "thread_name", 1, "communication"));
    for (const TraceEvent &event : trace.events)
      list.push_back({{"ph", "X"},
                      {"name", event.name},
                      {"pid", trace.rank},
                      {"tid", static_cast<int>(event.queue)},
                      {"ts", micro(event.begin)},
                      {"dur", (event.end - event.begin) * 1e6}});
    for (const TraceFlow &flow : trace.flows) {
      Json arrow = {{"ph", flow.sent ? "s" : "f"},
                    {"name", "message"},
                    {"cat", "message"},
                    // As text: numbers of 64 bits do not survive readers.
                    {"id", std::to_string(flow.id)},
                    {"pid", trace.rank},
                    {"tid", 1},
                    {"ts", micro(flow.time)}};
      if (!flow.sent)
        arrow["bp"] = "e"; // to the slice that encloses it
      list.push_back(std::move(arrow));
    }
  }
  return Json{{"traceEvents", std::move(list)}, {"displayTimeUnit", "ms"}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}
