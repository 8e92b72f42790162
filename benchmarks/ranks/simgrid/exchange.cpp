// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// usage: exchange RANKS_PER_NODE SENDS BYTES...
//
// One all-to-all of the runtime per size (bytes from each rank to each) and
// algorithm, on a simulated cluster: the runtime's exchanges over its MPI
// transport, compiled with smpicxx. Prints one JSON object per line. Bytes are
// not looked at, so all large memory may be one and the same.

#include "collective/RaggedExchange.h"
#include "collective/mpi/MpiTransport.h"

#include <cstdio>
#include <cstdlib>
#include <mpi.h>
#include <new>
#include <smpi/smpi.h>
#include <unistd.h>
#include <unordered_set>

using namespace moira;
using namespace moira::runtime;

// Staging of hundreds of ranks would not fit in memory; SimGrid maps such
// memory of all ranks to the same pages.
static constexpr size_t sharedFrom = 64 * 1024;
static std::unordered_set<void *> &sharedMemory() {
  static std::unordered_set<void *> set;
  return set;
}

void *operator new[](size_t bytes) {
  if (bytes < sharedFrom)
    return ::operator new(bytes);
  void *memory = SMPI_SHARED_MALLOC(bytes);
  sharedMemory().insert(memory);
  return memory;
}

void operator delete[](void *memory) noexcept {
  if (memory && sharedMemory().erase(memory))
    SMPI_SHARED_FREE(memory);
  else
    ::operator delete(memory);
}

void operator delete[](void *memory, size_t) noexcept {
  ::operator delete[](memory);
}

namespace {
class Equal final : public Flows {
public:
  explicit Equal(int64_t size) : size(size) {}
  int64_t bytes(int, int) const override { return size; }

private:
  const int64_t size;
};
} // namespace

static void check(const Status &status) {
  if (status.ok())
    return;
  fprintf(stderr, "exchange: %s\n", status.message.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void run(Collective &collective, Transport &transport) {
  Batch batch;
  while (collective.next(batch)) {
    check(transport.post(batch));
    for (Result<bool> done = transport.test();; done = transport.test()) {
      check(done.status());
      if (*done)
        break;
      transport.idle();
    }
  }
}

/// All ranks go on at the same simulated time; after a barrier they would not.
static double startTogether() {
  double mine = MPI_Wtime() + 1e-2, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  usleep(static_cast<useconds_t>((all - MPI_Wtime()) * 1e6));
  return MPI_Wtime();
}

static double seconds(Collective &collective, Transport &transport) {
  double begin = startTogether(), first = 0, last = 0;
  run(collective, transport);
  double end = MPI_Wtime();
  MPI_Allreduce(&begin, &first, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&end, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return last - first;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MpiOptions options;
  options.waitInside = true;
  options.sends = atoi(argv[2]);
  // All of them: the simulator searches messages that nobody expects yet.
  options.receives = 1 << 20;
  Result<std::unique_ptr<MpiTransport>> transport = MpiTransport::open(options);
  check(transport.status());
  const int self = (*transport)->rank(), ranks = (*transport)->ranks();
  const int nodeSize = atoi(argv[1]);
  for (int i = 3; i < argc; ++i) {
    const int64_t bytes = atoll(argv[i]);
    char *out = new char[bytes * ranks], *in = new char[bytes * ranks];
    Pieces pieces;
    for (int step = 0; step < ranks; ++step) {
      int peer = (self + step) % ranks;
      pieces.sends.push_back({peer, out + peer * bytes, bytes});
      pieces.receives.push_back({peer, in + peer * bytes, bytes});
    }
    for (bool hierarchical : {false, true}) {
      Equal flows(bytes);
      LinearExchange linear;
      HierarchicalExchange inNodes;
      linear.begin(self, pieces);
      inNodes.begin(self, ranks, nodeSize, pieces, flows, int64_t(64) << 20);
      double time = hierarchical ? seconds(inNodes, **transport)
                                 : seconds(linear, **transport);
      if (self == 0)
        printf("{\"ranks\": %d, \"bytes_per_peer\": %lld, \"algorithm\": "
               "\"%s\", \"sends\": %d, \"seconds\": %.9f}\n",
               ranks, static_cast<long long>(bytes),
               hierarchical ? "hierarchical" : "linear", options.sends, time);
      fflush(stdout);
    }
    delete[] out;
    delete[] in;
  }
  transport->reset();
  MPI_Finalize();
  return 0;
}
