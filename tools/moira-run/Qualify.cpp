// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Qualify.h"

#include "support/CommandLine.h"

#include "session/BundleFile.h"
#include "session/ManifestMerge.h"

#include "llvm/Support/Format.h"

#include <cstring>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

/// Whether the program's own results are the same bits.
static bool sameBits(const VariantRun &a, const VariantRun &b, size_t own) {
  for (size_t i = 0; i < own; ++i) {
    const ResultTensor &x = a.results[i], &y = b.results[i];
    if (x.shape != y.shape ||
        std::memcmp(x.data, y.data, *compactBytes(x.dtype, x.shape)) != 0)
      return false;
  }
  return true;
}

llvm::Error tools::qualify(const LoadedProgram &program,
                           const RunOptions &options, const Inputs &inputs,
                           std::vector<VariantRun> &runs, Progress &progress) {
  for (size_t i = 0; i < runs.size(); ++i) {
    VariantRun &run = runs[i];
    const VariantRun *first = nullptr;
    for (size_t j = 0; j < i && !first; ++j)
      if (runs[j].numerics == run.numerics && runs[j].passed)
        first = &runs[j];
    if (first && !run.gradients &&
        sameBits(run, *first, program.ownResults())) {
      run.passed = true;
      continue;
    }
    auto verification =
        verify(program, options, inputs, run.results,
               run.gradients ? &*run.gradients : nullptr, progress);
    if (!verification)
      return verification.takeError();
    run.passed = verification->passed();
    run.verification = std::move(*verification);
  }
  return llvm::Error::success();
}

void tools::printQualified(llvm::ArrayRef<VariantRun> runs,
                           llvm::raw_ostream &stream) {
  size_t width = 0;
  for (const VariantRun &run : runs)
    width = std::max(width, run.variant.size());
  for (const VariantRun &run : runs) {
    stream << "variant " << llvm::left_justify(run.variant, width) << ' '
           << (run.passed ? "passed" : "FAILED") << ", "
           << formatSeconds(run.seconds) << ", ";
    if (!run.verification) {
      stream << "the bits of the first of its class\n";
      continue;
    }
    const Comparison &values = run.verification->values;
    stream << llvm::format("%.2f", values.elements == 0
                                       ? 100.0
                                       : 100.0 * double(values.identical) /
                                             double(values.elements))
           << " % bit-identical to the oracle";
    if (!run.passed)
      stream << ": "
             << (values.beyond > 0 ? values.firstBeyond
                                   : "wrong choices of experts");
    stream << '\n';
  }
}

llvm::json::Array tools::qualifiedToJson(llvm::ArrayRef<VariantRun> runs) {
  llvm::json::Array list;
  for (const VariantRun &run : runs)
    list.push_back(llvm::json::Object{{"variant", run.variant},
                                      {"numerics", run.numerics},
                                      {"seconds", run.seconds},
                                      {"passed", run.passed}});
  return list;
}

llvm::Error tools::writeQualified(const RunOptions &options,
                                  const EntrySpec &entry,
                                  llvm::ArrayRef<VariantRun> runs) {
  auto file = BundleFile::open(options.program);
  if (!file.ok())
    return toError(file.status());
  BundleContents contents = (*file)->contents();
  std::vector<std::pair<std::string, std::string>> levels;
  for (const VariantRun &run : runs)
    levels.emplace_back(run.variant, run.passed ? "target" : "none");
  Result<std::string> manifest = qualifyVariants(
      contents.manifest, entry.ranks, entry.name, options.grad, levels);
  if (!manifest.ok())
    return toError(manifest.status().within(options.program));
  contents.manifest = *manifest;
  return toError(writeBundle(options.program, contents));
}
