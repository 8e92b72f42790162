// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A cluster for SimGrid: nodes of GPUs that reach each other through a switch
// with a link up and a link down per GPU, and one NIC per GPU to a network that
// never blocks. The environment sets MOIRA_SIM_NODES, MOIRA_SIM_GPUS (of a
// node), bandwidths in bytes/s and latencies in s: of a way inside the node
// MOIRA_SIM_NODE_BANDWIDTH, _LATENCY; of each NIC on it
// MOIRA_SIM_NIC_BANDWIDTH, _LATENCY.

#include <simgrid/s4u.hpp>

#include <cstdlib>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

static double number(const char *name, double otherwise) {
  const char *text = getenv(name);
  return text ? atof(text) : otherwise;
}

namespace {
struct Gpu {
  sg::Host *host;
  sg::Link *up, *down; ///< to the switch of the node, and from it
  sg::Link *nicOut, *nicInto;
};
} // namespace

static sg::Link *link(sg::NetZone *zone, const std::string &name,
                      double bandwidth, double latency) {
  return zone->create_link(name, bandwidth)->set_latency(latency)->seal();
}

static void addNode(sg::NetZone *root, int index, int gpus) {
  const double bandwidth = number("MOIRA_SIM_NODE_BANDWIDTH", 450e9);
  const double latency = number("MOIRA_SIM_NODE_LATENCY", 1e-6);
  const double nicBandwidth = number("MOIRA_SIM_NIC_BANDWIDTH", 50e9);
  const double nicLatency = number("MOIRA_SIM_NIC_LATENCY", 2.5e-6);
  const std::string name = "node" + std::to_string(index);
  sg::NetZone *zone = sg::create_full_zone(name);
  zone->set_parent(root);
  auto *router = zone->create_router(name + "-router");
  std::vector<Gpu> all;
  for (int i = 0; i < gpus; ++i) {
    std::string own = name + "-" + std::to_string(i);
    all.push_back({zone->create_host(own, 1e12)->seal(),
                   link(zone, own + "-up", bandwidth, latency / 2),
                   link(zone, own + "-down", bandwidth, latency / 2),
                   link(zone, own + "-out", nicBandwidth, nicLatency),
                   link(zone, own + "-in", nicBandwidth, nicLatency)});
  }
  for (const Gpu &from : all) {
    for (const Gpu &to : all)
      if (from.host != to.host)
        zone->add_route(from.host->get_netpoint(), to.host->get_netpoint(),
                        nullptr, nullptr,
                        {sg::LinkInRoute(from.up), sg::LinkInRoute(to.down)},
                        false);
    zone->add_route(from.host->get_netpoint(), router, nullptr, nullptr,
                    {sg::LinkInRoute(from.nicOut)}, false);
    zone->add_route(router, from.host->get_netpoint(), nullptr, nullptr,
                    {sg::LinkInRoute(from.nicInto)}, false);
  }
  // Wide enough never to count.
  sg::Link *core = root->create_link(name + "-core", 1e15)
                       ->set_latency(0)
                       ->set_sharing_policy(sg::Link::SharingPolicy::FATPIPE)
                       ->seal();
  root->add_route(zone->get_netpoint(), nullptr, router, nullptr,
                  {sg::LinkInRoute(core)}, true);
  zone->seal();
}

extern "C" void load_platform(const sg::Engine &);
void load_platform(const sg::Engine &) {
  sg::NetZone *root = sg::create_star_zone("root");
  const int nodes = static_cast<int>(number("MOIRA_SIM_NODES", 8));
  const int gpus = static_cast<int>(number("MOIRA_SIM_GPUS", 8));
  for (int i = 0; i < nodes; ++i)
    addNode(root, i, gpus);
  root->seal();
}
