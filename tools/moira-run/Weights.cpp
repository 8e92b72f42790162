// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Weights.h"

#include "io/CheckpointSource.h"
#include "support/CommandLine.h"

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

llvm::Error tools::bindWeights(Session &session, const RunOptions &options) {
  if (options.weights.empty())
    return toError(session.bindRandom(options.seed));
  auto source = io::CheckpointSource::open(options.weights);
  if (!source.ok())
    return toError(source.status());
  return toError(session.bindSource(**source));
}

int64_t tools::weightBytes(const Manifest &manifest) {
  int64_t all = 0;
  for (const ParameterSpec &parameter : manifest.parameters)
    all += parameter.packedBytes();
  return all;
}
