// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What variants of an entry take, before anything has run.

#ifndef MOIRA_RUNTIME_SESSION_PREDICTIONS_H
#define MOIRA_RUNTIME_SESSION_PREDICTIONS_H

#include "cost/Calibration.h"
#include "session/Manifest.h"

namespace moira::runtime {

/// Of all layers of an entry, experts and exchanges alone.
struct VariantPrediction {
  double seconds = 0;    ///< with the way back, where the entry has one
  int64_t peakBytes = 0; ///< of the layer that needs most
};

/// Predicts each variant, chunks of degree 1, for `rows` tokens on every rank
/// whose choices are spread evenly, on ranks in one node. Without a calibration
/// the machine is assumed (chooseCalibration). Empty for an entry of one rank
/// or without layers.
Result<std::vector<VariantPrediction>>
predictVariants(const EntrySpec &entry, int64_t rows,
                const std::optional<Calibration> &calibration = std::nullopt);

/// The rows of predictions that compilers write and print.
inline constexpr int64_t predictedRows = 1024;

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_PREDICTIONS_H
