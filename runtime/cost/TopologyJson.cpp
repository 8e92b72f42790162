// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/Topology.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>

using namespace moira;
using namespace moira::runtime;

using Json = nlohmann::json;

namespace moira::runtime {

/// Reads one description. The first fault is kept.
class TopologyReader {
public:
  Result<Topology> read(const Json &json);

private:
  /// Fails; the value returned does not matter.
  double fault(const std::string &where, const std::string &what) {
    if (status.ok())
      status = Status(MOIRA_INVALID_ARGUMENT, where + ": " + what);
    return 0;
  }
  void object(const Json &json, const std::string &where,
              const std::set<std::string> &keys);
  double number(const Json &json, const std::string &where, const char *key,
                std::optional<double> otherwise, bool positive);
  Link link(const Json &json, const std::string &where, const char *key);
  void nodes(const Json &json);
  int add(Link link, const std::string &name);
  void inside(int node, int first, int count);
  void between();

  Status status;
  Topology topology;
  std::vector<int> firstRank; ///< [nodes + 1]
  Link local, nic;
  bool direct = false; ///< a link per pair within nodes
  bool nicPerRank = false;
  std::optional<Link> fabric;
  std::vector<int> nicOut, nicIn; ///< by rank
};

} // namespace moira::runtime

/// More is a mistake: paths of all pairs are kept.
static constexpr double maxRanks = 4096;

void TopologyReader::object(const Json &json, const std::string &where,
                            const std::set<std::string> &keys) {
  if (!json.is_object()) {
    fault(where, concat("expected an object, got ", json.type_name()));
    return;
  }
  for (const auto &item : json.items())
    if (!keys.count(item.key()))
      fault(where, concat("expected no key '", item.key(), "'"));
}

double TopologyReader::number(const Json &json, const std::string &where,
                              const char *key, std::optional<double> otherwise,
                              bool positive) {
  if (!status.ok())
    return 0;
  std::string name = where + "." + key;
  if (!json.contains(key))
    return otherwise ? *otherwise : fault(name, "expected a number, got none");
  const Json &value = json.at(key);
  if (!value.is_number())
    return fault(name, concat("expected a number, got ", value.type_name()));
  double got = value.get<double>();
  if (!std::isfinite(got) || (positive ? got <= 0 : got < 0))
    return fault(name,
                 concat("expected a number ",
                        positive ? "above 0" : "of at least 0", ", got ", got));
  return got;
}

Link TopologyReader::link(const Json &json, const std::string &where,
                          const char *key) {
  Link value;
  std::string name = where.empty() ? key : where + "." + key;
  if (!json.contains(key)) {
    fault(name, "expected a link, got none");
    return value;
  }
  const Json &entry = json.at(key);
  object(entry, name, {"bandwidth", "latency", "overhead", "kind", "per"});
  value.bandwidth = number(entry, name, "bandwidth", std::nullopt, true);
  value.latency = number(entry, name, "latency", 0.0, false);
  value.overhead = number(entry, name, "overhead", 0.0, false);
  return value;
}

/// Either a number of equal nodes or the list of their sizes.
void TopologyReader::nodes(const Json &json) {
  firstRank = {0};
  if (!json.contains("nodes")) {
    fault("nodes", "expected a number or a list, got none");
    return;
  }
  auto add = [&](const std::string &where, const Json &value) {
    if (!value.is_number_integer() || value.get<double>() < 1 ||
        value.get<double>() > maxRanks) {
      fault(where, concat("expected an integer from 1 to ", maxRanks, ", got ",
                          value.dump()));
      return 0;
    }
    return value.get<int>();
  };
  const Json &list = json.at("nodes");
  if (list.is_array()) {
    if (json.contains("ranks_per_node"))
      fault("ranks_per_node", "expected no such key beside a list of nodes");
    if (list.empty())
      fault("nodes", "expected at least one node, got none");
    for (size_t i = 0; i < list.size() && status.ok(); ++i)
      firstRank.push_back(firstRank.back() +
                          add(concat("nodes[", i, "]"), list[i]));
  } else {
    int count = add("nodes", list);
    int size = json.contains("ranks_per_node")
                   ? add("ranks_per_node", json.at("ranks_per_node"))
                   : 1;
    for (int i = 0; i < count && firstRank.back() <= maxRanks; ++i)
      firstRank.push_back(firstRank.back() + size);
  }
  if (status.ok() && firstRank.back() > maxRanks)
    fault("nodes", concat("expected at most ", maxRanks, " ranks, got ",
                          firstRank.back()));
}

int TopologyReader::add(Link link, const std::string &name) {
  link.name = name;
  topology.linkList.push_back(std::move(link));
  return static_cast<int>(topology.linkList.size()) - 1;
}

/// Links of a node: of each pair, or of each rank to the node's switch.
void TopologyReader::inside(int node, int first, int count) {
  int w = topology.rankCount;
  // Half of a wire's latency at either end.
  Link end = local;
  end.latency /= 2;
  std::vector<int> out, in;
  for (int r = first; r < first + count && !direct && count > 1; ++r) {
    out.push_back(
        add(end, concat("rank ", r, " to the switch of node ", node)));
    in.push_back(add(end, concat("switch of node ", node, " to rank ", r)));
  }
  for (int p = first; p < first + count; ++p)
    for (int q = first; q < first + count; ++q)
      if (p != q)
        topology.paths[p * w + q] =
            direct ? std::vector<int>{add(local, concat("rank ", p, " to ", q))}
                   : std::vector<int>{out[p - first], in[q - first]};
}

void TopologyReader::between() {
  int w = topology.rankCount;
  int core = fabric ? add(*fabric, "fabric") : -1;
  for (int p = 0; p < w; ++p)
    for (int q = 0; q < w; ++q) {
      if (topology.nodes[p] == topology.nodes[q])
        continue;
      std::vector<int> &path = topology.paths[p * w + q];
      path.push_back(nicOut[p]);
      if (core >= 0)
        path.push_back(core);
      path.push_back(nicIn[q]);
    }
}

Result<Topology> TopologyReader::read(const Json &json) {
  object(json, "description",
         {"name", "nodes", "ranks_per_node", "intra", "inter", "fabric"});
  if (status.ok())
    nodes(json);
  if (!status.ok())
    return status;
  int nodeCount = static_cast<int>(firstRank.size()) - 1;
  bool shared = firstRank.back() > nodeCount; // some node has several ranks
  auto choice = [&](const char *section, const char *key, const char *first,
                    const char *second) {
    const Json &entry = json.at(section);
    if (!entry.contains(key))
      return false;
    if (entry.at(key) == second)
      return true;
    if (entry.at(key) != first)
      fault(concat(section, ".", key),
            concat("expected \"", first, "\" or \"", second, "\", got ",
                   entry.at(key).dump()));
    return false;
  };
  if (shared || json.contains("intra"))
    local = link(json, "", "intra");
  if (nodeCount > 1 || json.contains("inter"))
    nic = link(json, "", "inter");
  if (json.contains("fabric"))
    fabric = link(json, "", "fabric");
  if (status.ok() && json.contains("intra"))
    direct = choice("intra", "kind", "switch", "direct");
  if (status.ok() && json.contains("inter"))
    nicPerRank = choice("inter", "per", "node", "rank");
  if (!status.ok())
    return status;

  int w = topology.rankCount = firstRank.back();
  topology.paths.resize(static_cast<size_t>(w) * w);
  topology.nodes.resize(w);
  nicOut.resize(w);
  nicIn.resize(w);
  topology.perNode = firstRank[1];
  Link end = nic;
  end.latency /= 2;
  for (int n = 0; n < nodeCount; ++n) {
    int first = firstRank[n], count = firstRank[n + 1] - first;
    if (count != topology.perNode)
      topology.perNode = 0;
    inside(n, first, count);
    for (int r = first; r < first + count; ++r) {
      topology.nodes[r] = n;
      bool own = nodeCount > 1 && (nicPerRank || r == first);
      std::string who = nicPerRank ? concat("rank ", r) : concat("node ", n);
      nicOut[r] = own ? add(end, who + " nic out") : r ? nicOut[r - 1] : 0;
      nicIn[r] = own ? add(end, who + " nic in") : r ? nicIn[r - 1] : 0;
    }
  }
  between();
  return topology;
}

Result<Topology> Topology::parse(const std::string &text,
                                 const std::string &name) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error &error) {
    return Status(
        MOIRA_INVALID_ARGUMENT,
        concat(name, ": expected JSON, got a fault at byte ", error.byte));
  }
  Result<Topology> read = TopologyReader().read(json);
  return read.ok() ? std::move(read)
                   : Result<Topology>(read.status().within(name));
}

Result<Topology> Topology::read(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return Status(MOIRA_NOT_FOUND, path + ": expected a readable file");
  std::string text((std::istreambuf_iterator<char>(file)),
                   std::istreambuf_iterator<char>());
  return parse(text, path);
}
