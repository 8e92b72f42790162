// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Optimizers: elementwise rules that the program itself brings as entries
// (EntrySpec::update), run over the packed bytes of every parameter.

#ifndef MOIRA_RUNTIME_SESSION_OPTIMIZER_H
#define MOIRA_RUNTIME_SESSION_OPTIMIZER_H

#include "base/Memory.h"
#include "base/Pool.h"
#include "session/GradientTable.h"
#include "session/ParameterTable.h"

#include <memory>
#include <string>
#include <vector>

namespace moira::runtime {

/// The numbers of an update; what a rule does not know of is ignored.
struct UpdateOptions {
  std::string rule = "adamw"; ///< "sgd", "adam", "adamw"
  double learningRate = 1e-3;
  double momentum = 0; ///< sgd
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8; ///< adam, adamw
  double weightDecay = 0;
  double gradientScale = 1; ///< gradients count times this
};

/// Parameters of 16 bits have a master copy in f32, from which they are rounded
/// after each update; states are f32, of f64 parameters f64. Everything has the
/// layout of the parameter's row, so that no update moves an element. Updates
/// give the same bits with any number of threads. One thread at a time;
/// references must outlive it.
class Optimizer {
public:
  Optimizer(const Program &program, Pool &pool,
            std::shared_ptr<MemoryAccount> account);
  ~Optimizer();

  /// Updates every row that has a gradient. Fails with MOIRA_NOT_FOUND where
  /// the program has no code for the rule and a row's type. States begin at
  /// zero; a change of the rule begins them again.
  Status update(const UpdateOptions &options, ParameterTable &parameters,
                const GradientTable &gradients);

  /// Updates so far, with this rule.
  int64_t steps() const { return stepCount; }
  void setSteps(int64_t steps) { stepCount = steps; }
  const std::string &rule() const { return currentRule; }
  /// Forgets all states where the rule is another one.
  void setRule(const std::string &rule);

  /// Names of what a rule keeps per element: "momentum", "exp_avg", ...
  static std::vector<std::string> stateNames(const std::string &rule);
  /// A state of a row, made and zero where there was none; "master" is the f32
  /// copy, made from the parameter.
  Result<void *> state(int row, const std::string &name,
                       ParameterTable &parameters);
  /// Type of states and of the master copy.
  DataType stateType(int row) const;
  bool hasMaster(int row) const;
  /// States and the master copy of a row, those that there are.
  std::vector<void *> kept(int row);
  /// Makes master copies again from the parameters when they are next needed:
  /// after others than updates have changed those.
  void forgetMasters();

private:
  struct Row {
    std::vector<Storage> states; ///< in the order of stateNames
    Storage master;
  };
  struct Job {
    int row;
    int64_t first, count;
  };
  class Worker;
  struct Code;

  Status prepare(int row, ParameterTable &parameters);
  Result<int> findEntry(const std::string &rule, DataType dtype) const;
  int64_t count(int row) const;

  const Program &program;
  const std::vector<ParameterSpec> &specs;
  Pool &pool;
  std::shared_ptr<MemoryAccount> account;
  std::string currentRule;
  int64_t stepCount = 0;
  std::vector<Row> rows;
  std::vector<std::unique_ptr<Worker>> workers; ///< by worker of the pool
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_OPTIMIZER_H
