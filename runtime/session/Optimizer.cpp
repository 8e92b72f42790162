// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/Optimizer.h"

#include "base/Convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

using namespace moira;
using namespace moira::runtime;

/// Elements that a thread updates at a time: all that is read and written of
/// them stays in the second cache level.
static constexpr int64_t chunkElements = 8192;
/// Results of an entry: parameter, two states, a rounded copy.
static constexpr int64_t mostResults = 4;
/// About what an element takes; only says what is worth a thread.
static constexpr int64_t nanosecondsPerElement = 2;

Optimizer::Optimizer(const Program &program, Pool &pool,
                     std::shared_ptr<MemoryAccount> account)
    : program(program), specs(program.manifest().parameters), pool(pool),
      account(std::move(account)), rows(specs.size()) {}

std::vector<std::string> Optimizer::stateNames(const std::string &rule) {
  if (rule == "sgd")
    return {"momentum_buffer"};
  return {"exp_avg", "exp_avg_sq"};
}

DataType Optimizer::stateType(int row) const {
  return specs[row].sourceType == DataType::F64 ? DataType::F64 : DataType::F32;
}

bool Optimizer::hasMaster(int row) const {
  return byteSize(specs[row].sourceType) == 2;
}

int64_t Optimizer::count(int row) const {
  return specs[row].packedBytes() / byteSize(specs[row].sourceType);
}

void Optimizer::setRule(const std::string &rule) {
  if (rule == currentRule)
    return;
  for (Row &row : rows)
    row.states.clear();
  currentRule = rule;
  stepCount = 0;
}

Result<int> Optimizer::findEntry(const std::string &rule,
                                 DataType dtype) const {
  std::string wanted = concat("moira_update_", rule, "_", name(dtype));
  const Manifest &manifest = program.manifest();
  int entry = manifest.findEntry(wanted);
  if (entry >= 0 && manifest.entries[entry].update == rule)
    return entry;
  return Status(
      MOIRA_NOT_FOUND,
      concat("expected the code of optimizer '", rule, "' for ", name(dtype),
             " in the program (moira-compile --optimizer), got none"));
}

/// The states and the master copy of a row.
Status Optimizer::prepare(int row, ParameterTable &parameters) {
  Row &kept = rows[row];
  int64_t bytes = count(row) * byteSize(stateType(row));
  auto allocate = [&](Storage &storage) {
    Result<Storage> made =
        Storage::allocate(account, MemoryKind::Training, bytes);
    if (!made.ok())
      return made.status().within(
          concat("optimizer of parameter '", specs[row].name, "'"));
    storage = std::move(*made);
    return Status();
  };
  while (kept.states.size() < stateNames(currentRule).size()) {
    Storage storage;
    MOIRA_RETURN_IF_ERROR(allocate(storage));
    std::memset(storage.data(), 0, bytes);
    kept.states.push_back(std::move(storage));
  }
  if (hasMaster(row) && !kept.master.data()) {
    MOIRA_RETURN_IF_ERROR(allocate(kept.master));
    convert(specs[row].sourceType, parameters.params()[row].data, DataType::F32,
            kept.master.data(), count(row));
  }
  return Status();
}

Result<void *> Optimizer::state(int row, const std::string &stateName,
                                ParameterTable &parameters) {
  MOIRA_RETURN_IF_ERROR(prepare(row, parameters));
  if (stateName == "master")
    return rows[row].master.data();
  std::vector<std::string> names = stateNames(currentRule);
  auto place = std::find(names.begin(), names.end(), stateName);
  if (place == names.end())
    return Status(MOIRA_NOT_FOUND,
                  concat("expected a state of optimizer '", currentRule,
                         "', got '", stateName, "'"));
  return rows[row].states[place - names.begin()].data();
}

std::vector<void *> Optimizer::kept(int row) {
  std::vector<void *> all;
  for (Storage &state : rows[row].states)
    all.push_back(state.data());
  if (rows[row].master.data())
    all.push_back(rows[row].master.data());
  return all;
}

void Optimizer::forgetMasters() {
  for (Row &row : rows)
    row.master = Storage();
}

//===----------------------------------------------------------------------===//
// An update
//===----------------------------------------------------------------------===//

/// The numbers that entries take, by name; `step` counts from 1.
static std::map<std::string, double> numbersOf(const UpdateOptions &options,
                                               int64_t step) {
  double count = static_cast<double>(step);
  double first = 1 - std::pow(options.beta1, count);
  double second = 1 - std::pow(options.beta2, count);
  bool decoupled = options.rule == "adamw";
  double decay = options.weightDecay;
  return {{"learning_rate", options.learningRate},
          {"momentum", options.momentum},
          {"of_gradient", options.nesterov ? 1 : 0},
          {"of_momentum", options.nesterov ? options.momentum : 1},
          {"weight_decay", decoupled ? 0 : decay},
          {"keep", decoupled ? 1 - options.learningRate * decay : 1},
          {"step_size", options.learningRate / first},
          {"one_minus_beta1", 1 - options.beta1},
          {"beta2", options.beta2},
          {"one_minus_beta2", 1 - options.beta2},
          {"root_correction", std::sqrt(second)},
          {"epsilon", options.epsilon},
          {"gradient_scale", options.gradientScale}};
}

/// One entry for one element type, with the numbers of this update.
struct Optimizer::Code {
  const EntrySpec *spec;
  moira_step_entry step;
  std::vector<double> wide; ///< numbers in the order of the inputs
  std::vector<float> narrow;
  bool isWide;

  Code(const Program &program, int entry, const UpdateOptions &options,
       int64_t updates)
      : spec(&program.manifest().entries[entry]), step(program.step(entry, 0)) {
    isWide = spec->inputs[0].dtype == DataType::F64;
    std::map<std::string, double> numbers = numbersOf(options, updates);
    for (const TensorSpec &input : spec->inputs) {
      wide.push_back(numbers[input.name]);
      narrow.push_back(static_cast<float>(numbers[input.name]));
    }
  }
  void *number(size_t input) {
    return isWide ? static_cast<void *>(&wide[input]) : &narrow[input];
  }
};

/// Runs entries on a part of a row. Results go to memory of the worker and from
/// there into place, so that code which assumes that its results are not its
/// inputs is right, and fast.
class Optimizer::Worker {
public:
  explicit Worker(std::shared_ptr<MemoryAccount> account)
      : step(nullptr, std::move(account)) {}

  void run(Code &code, const Job &job, const std::vector<char *> &memory,
           const std::vector<int64_t> &bytes) {
    const EntrySpec &spec = *code.spec;
    int64_t shape[2] = {1, job.count};
    size_t tensors = inputsOf(spec);
    buffers.clear();
    for (size_t i = 0; i < spec.inputs.size(); ++i) {
      void *data =
          i < tensors ? memory[i] + job.first * bytes[i] : code.number(i);
      buffers.push_back({data, shape});
    }
    moira_ctx *ctx = step.context();
    int64_t mark = ctx->api->mark(ctx, 0);
    results.resize(spec.results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].dtype = spec.results[i].dtype;
      results[i].shape = {1, job.count};
      results[i].data =
          ctx->api->alloc(ctx, 0, job.count * byteSize(spec.results[i].dtype));
      if (!results[i].data)
        return;
    }
    step.resume(&spec, &results);
    code.step(ctx, buffers.data());
    // The new parameter and states stand where the old ones did; a rounded copy
    // comes last.
    for (size_t i = 0; i < results.size() && !step.hasFailed(); ++i) {
      size_t target = i == 0 ? 0 : i + 1;
      std::memcpy(memory[target] + job.first * bytes[target], results[i].data,
                  job.count * byteSize(results[i].dtype));
    }
    ctx->api->release(ctx, 0, mark);
  }
  /// Starts with all the memory that any part needs, so that it does not matter
  /// which worker gets how many.
  Status begin() {
    step.begin(nullptr, nullptr);
    return step.arena(0).reserve(chunkElements * int64_t(sizeof(double)) *
                                 mostResults);
  }
  bool hasFailed() const { return step.hasFailed(); }
  Status finish() { return step.finish(); }

private:
  static size_t inputsOf(const EntrySpec &spec) {
    size_t tensors = 0;
    while (tensors < spec.inputs.size() && !spec.inputs[tensors].shape.empty())
      ++tensors;
    return tensors;
  }

  StepContext step;
  std::vector<moira_buffer> buffers;
  std::vector<ResultTensor> results;
};

Status Optimizer::update(const UpdateOptions &options,
                         ParameterTable &parameters,
                         const GradientTable &gradients) {
  setRule(options.rule);
  // 1. Code and memory, before anything changes.
  std::vector<int> updated = gradients.rows();
  std::map<DataType, int> entries;
  for (int row : updated) {
    DataType dtype = specs[row].sourceType;
    Result<int> entry = findEntry(options.rule, dtype);
    if (!entry.ok())
      return entry.status();
    entries[dtype] = *entry;
    MOIRA_RETURN_IF_ERROR(prepare(row, parameters));
  }
  std::vector<Code> codes;
  std::map<DataType, int> codeOf;
  for (auto [dtype, entry] : entries) {
    codeOf[dtype] = static_cast<int>(codes.size());
    codes.emplace_back(program, entry, options, stepCount + 1);
  }

  // 2. What each job reads and writes: parameter, gradient, states, and the
  // parameter itself after its master copy.
  std::vector<std::vector<char *>> memory(specs.size());
  std::vector<std::vector<int64_t>> bytes(specs.size());
  std::vector<Job> jobs;
  for (int row : updated) {
    Result<void *> data = parameters.change(row);
    if (!data.ok())
      return data.status();
    int64_t size = byteSize(stateType(row));
    auto add = [&](const void *address, int64_t elementBytes) {
      memory[row].push_back(static_cast<char *>(const_cast<void *>(address)));
      bytes[row].push_back(elementBytes);
    };
    add(hasMaster(row) ? rows[row].master.data() : *data, size);
    add(gradients.sum(row), size);
    for (Storage &state : rows[row].states)
      add(state.data(), size);
    if (hasMaster(row))
      add(*data, byteSize(specs[row].sourceType));
    for (int64_t first = 0; first < count(row); first += chunkElements)
      jobs.push_back({row, first, std::min(chunkElements, count(row) - first)});
  }

  // 3. All parts, each by whichever thread comes first.
  while (static_cast<int>(workers.size()) < pool.threads())
    workers.push_back(std::make_unique<Worker>(account));
  for (std::unique_ptr<Worker> &worker : workers)
    MOIRA_RETURN_IF_ERROR(worker->begin());
  auto body = [&](int64_t index, int64_t worker) {
    const Job &job = jobs[index];
    if (!workers[worker]->hasFailed())
      workers[worker]->run(codes[codeOf.at(specs[job.row].sourceType)], job,
                           memory[job.row], bytes[job.row]);
  };
  pool.run(jobs.size(), chunkElements * nanosecondsPerElement, std::ref(body));
  Status first;
  for (std::unique_ptr<Worker> &worker : workers) {
    Status status = worker->finish();
    if (first.ok())
      first = status;
  }
  if (first.ok())
    ++stepCount;
  return first.within("optimizer");
}

Optimizer::~Optimizer() = default;
