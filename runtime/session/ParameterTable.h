// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The packed parameters of a session.

#ifndef MOIRA_RUNTIME_SESSION_PARAMETERTABLE_H
#define MOIRA_RUNTIME_SESSION_PARAMETERTABLE_H

#include "base/Pool.h"
#include "base/Random.h"
#include "session/ParameterShard.h"
#include "session/ParameterSource.h"
#include "session/Program.h"
#include "session/StepContext.h"

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace moira::runtime {

/// Binds parameters: finds them in a source, converts and packs them slice by
/// slice on the pool. Of a parameter with a placement each rank reads its own
/// shards and nothing else. One thread at a time; the references must outlive
/// it.
class ParameterTable {
public:
  using Progress = std::function<void(int64_t doneBytes, int64_t allBytes)>;

  ParameterTable(const Program &program, Pool &pool,
                 std::shared_ptr<MemoryAccount> account, Progress progress);
  ~ParameterTable();

  /// Binds what came packed with the program, or fails where all parameters
  /// together would pass the memory limit.
  Status open();

  /// Says which rank this is and which unit stands in which slot: by parameter
  /// the lasting table of its layer, [ranks, slots]; empty: unit rank * slots +
  /// slot. Slots whose unit changes are no longer bound; no memory moves. Fails
  /// with MOIRA_INVALID_ARGUMENT where a parameter does not fit its table.
  Status place(int rank, int ranks, std::vector<std::vector<int32_t>> tables);

  /// The same tables where bytes have moved: all slots are bound.
  void follow(std::vector<std::vector<int32_t>> newTables) {
    tables = std::move(newTables);
    tables.resize(specs.size());
  }
  const std::vector<int32_t> &table(int parameter) const {
    return tables[parameter];
  }

  /// See Session.
  Status bind(const std::string &name, const TensorView &tensor);
  Status bindSource(ParameterSource &source);
  Status bindRandom(uint64_t seed);

  /// Indices of parameters with a slice that is not bound.
  std::vector<int> unbound() const;
  /// Packed bytes of all parameters, bound or not.
  int64_t totalBytes() const { return allBytes; }
  /// Bytes that were read from sources and tensors so far.
  int64_t readBytes() const { return bytesRead; }
  /// The bytes of a bound parameter to change them; counts as a new version.
  /// What the program holds is copied first.
  Result<void *> change(int parameter);
  /// What `change` and `write` would allocate for that copy.
  int64_t bytesToCopy(int parameter) const {
    return storages[parameter].data() ? 0 : specs[parameter].packedBytes();
  }
  /// Grows with every change of any parameter, and of one.
  uint64_t version() const { return changes; }
  /// Counts every parameter as changed, though none has.
  void touch() {
    ++changes;
    for (uint64_t &count : changesOf)
      ++count;
  }
  uint64_t version(int parameter) const { return changesOf[parameter]; }
  /// The bytes of a bound parameter, to write to slots that hold no unit; is no
  /// new version. What the program holds is copied first.
  Result<void *> write(int parameter);
  /// Packed bytes of a slot.
  int64_t slotBytes(int parameter) const {
    return specs[parameter].packedSliceBytes;
  }
  /// The unit of the placement that stands in a slot of this rank, or the
  /// slice itself where there is no placement; -1: none.
  int64_t unitOf(int parameter, int64_t slice) const {
    return unitAt(parameter, slice);
  }
  /// Whether another rank before this one, or an earlier slot of this rank,
  /// holds the same bytes.
  bool isReplica(int parameter, int64_t slice) const;
  /// Adds the ranks that hold a part of a slice of the file, each shard's first
  /// holder; `fileSlice` -1: of all slices.
  void addHolders(int parameter, int64_t fileSlice, std::set<int> &ranks) const;
  /// Makes all parameters unbound; their memory stays.
  void forget();
  /// For moira_ctx.params; stays in place.
  const moira_param *params() const { return packed.data(); }

private:
  /// One slice to be packed.
  struct Job {
    int parameter;
    int64_t slice;
    DataType dtype = DataType::F32; ///< of the source
    const void *data = nullptr;     ///< the shard's first run; null: no source
    int64_t unit = 0;               ///< of the placement; -1: an empty slot
    PhiloxKey key{};                ///< without a source
    bool release = false;           ///< the last user of these bytes
    bool done = false;
  };
  using Jobs = std::vector<Job>;

  int64_t unitAt(int parameter, int64_t slice) const;
  int64_t fileSliceOf(int parameter, int64_t unit) const;
  ParameterShard shardOf(const Job &job) const;

  Status addWhole(int parameter, const TensorView &tensor, Jobs &jobs) const;
  Status addSlice(int parameter, int64_t fileSlice, const TensorView &tensor,
                  Jobs &jobs) const;
  void addEmpty(int parameter, Jobs &jobs) const;
  Status addFrom(ParameterSource &source, int parameter, Jobs &jobs) const;
  Status pack(Jobs jobs, ParameterSource *source);
  Status prepare(const Jobs &jobs);
  void runJob(Job &job, StepContext &step, ParameterSource *source);
  const void *stage(const Job &job, StepContext &step);
  void copyRuns(const Job &job, void *target) const;
  void fillRuns(const Job &job, void *target) const;
  int64_t sliceBytes(int parameter) const;

  const Program &program;
  const std::vector<ParameterSpec> &specs;
  Pool &pool;
  std::shared_ptr<MemoryAccount> account;
  Progress progress;
  int rank = 0;
  std::vector<std::vector<int32_t>> tables; ///< by parameter
  int64_t allBytes = 0;
  uint64_t changes = 0;
  std::vector<uint64_t> changesOf; ///< by parameter
  std::atomic<int64_t> bytesRead{0};
  int64_t borrowed = 0; ///< bytes counted for what the program holds
  std::vector<Storage> storages;
  std::vector<std::vector<char>> bound; ///< by parameter and slice
  std::vector<moira_param> packed;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_PARAMETERTABLE_H
