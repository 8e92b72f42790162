// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Statistics as lines of JSON, one for each step of each rank
// (docs/statistics.md has the schema).

#ifndef MOIRA_RUNTIME_SESSION_STATISTICSJSON_H
#define MOIRA_RUNTIME_SESSION_STATISTICSJSON_H

#include "session/Manifest.h"
#include "statistics/Statistics.h"

#include <cstdio>
#include <memory>
#include <mutex>

namespace moira::runtime {

/// A row as one line, without its end.
std::string toJsonLine(const StepRow &row, const Manifest &manifest, int rank);

/// A file that several ranks of a process write lines to. Any thread.
class JsonLinesFile {
public:
  /// Replaces what was there.
  static Result<std::shared_ptr<JsonLinesFile>> open(const std::string &path);
  ~JsonLinesFile();

  /// Appends; a failure is kept.
  void write(const std::string &line);
  /// What has been written is in the file, or why not.
  Status flush();

private:
  JsonLinesFile(const std::string &path, std::FILE *file)
      : path(path), file(file) {}

  const std::string path;
  std::mutex mutex;
  std::FILE *file;
  int failure = 0; ///< errno of the first one
};

/// Writes the rows of one session.
class JsonLinesSink final : public StatisticsSink {
public:
  /// `manifest` is the session's, and lives as long.
  JsonLinesSink(std::shared_ptr<JsonLinesFile> file, const Manifest &manifest,
                int rank)
      : file(std::move(file)), manifest(manifest), rank(rank) {}

  void record(const StepRow &row) override {
    file->write(toJsonLine(row, manifest, rank));
  }

private:
  std::shared_ptr<JsonLinesFile> file;
  const Manifest &manifest;
  const int rank;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_STATISTICSJSON_H
