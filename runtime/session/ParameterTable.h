// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The packed parameters of a session.

#ifndef MOIRA_RUNTIME_SESSION_PARAMETERTABLE_H
#define MOIRA_RUNTIME_SESSION_PARAMETERTABLE_H

#include "base/Pool.h"
#include "base/Random.h"
#include "session/ParameterSource.h"
#include "session/Program.h"
#include "session/StepContext.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace moira::runtime {

/// Binds parameters: finds them in a source, converts and packs them slice by
/// slice on the pool. One thread at a time; the references must outlive it.
class ParameterTable {
public:
  using Progress = std::function<void(int64_t doneBytes, int64_t allBytes)>;

  ParameterTable(const Program &program, Pool &pool,
                 std::shared_ptr<MemoryAccount> account, Progress progress);
  ~ParameterTable();

  /// Binds what came packed with the program, or fails where all parameters
  /// together would pass the memory limit.
  Status open();

  /// See Session.
  Status bind(const std::string &name, const TensorView &tensor);
  Status bindSource(ParameterSource &source);
  Status bindRandom(uint64_t seed);

  /// Indices of parameters with a slice that is not bound.
  std::vector<int> unbound() const;
  /// Packed bytes of all parameters, bound or not.
  int64_t totalBytes() const { return allBytes; }
  /// For moira_ctx.params; stays in place.
  const moira_param *params() const { return packed.data(); }

private:
  /// One slice to be packed.
  struct Job {
    int parameter;
    int64_t slice;
    DataType dtype;   ///< of the source
    const void *data; ///< null: random
    PhiloxKey key;    ///< for random
    bool release;     ///< the last user of these bytes
    bool done;
  };

  Status addWhole(int parameter, const TensorView &tensor,
                  std::vector<Job> &jobs) const;
  Status addSlice(int parameter, int64_t slice, const TensorView &tensor,
                  std::vector<Job> &jobs) const;
  Status addFrom(ParameterSource &source, int parameter,
                 std::vector<Job> &jobs) const;
  Status pack(std::vector<Job> jobs, ParameterSource *source);
  Status prepare(const std::vector<Job> &jobs);
  void runJob(Job &job, StepContext &step, ParameterSource *source);
  const void *stage(const Job &job, StepContext &step);
  int64_t sliceBytes(int parameter) const;

  const Program &program;
  const std::vector<ParameterSpec> &specs;
  Pool &pool;
  std::shared_ptr<MemoryAccount> account;
  Progress progress;
  int64_t allBytes = 0;
  int64_t borrowed = 0; ///< bytes counted for what the program holds
  std::vector<Storage> storages;
  std::vector<std::vector<char>> bound; ///< by parameter and slice
  std::vector<moira_param> packed;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_PARAMETERTABLE_H
