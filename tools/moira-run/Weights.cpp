// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Weights.h"

#include "io/CheckpointSource.h"

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

Status tools::bindWeights(Session &session, const RunOptions &options) {
  if (options.weights.empty())
    return session.bindRandom(options.seed);
  auto source = io::CheckpointSource::open(options.weights);
  if (!source.ok())
    return source.status();
  return session.bindSource(**source);
}

int64_t tools::weightBytes(const Manifest &manifest) {
  int64_t all = 0;
  for (const ParameterSpec &parameter : manifest.parameters)
    all += parameter.packedBytes();
  return all;
}
