// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs one kernel for NVIDIA GPUs on the emulated device, with its checks:
// from LLVM IR of any compiler, or from a GPU module in MLIR.

#include "Arguments.h"

#include "moira/JIT/Diagnostics.h"
#include "moira/JIT/EmulatedKernels.h"
#include "moira/Pipelines/Pipelines.h"
#include "support/CommandLine.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;
namespace cl = llvm::cl;

static constexpr llvm::StringLiteral toolName = "moira-emulate";

namespace {
struct Options {
  cl::opt<std::string> file{cl::Positional, cl::Required,
                            cl::desc("FILE.ll|FILE.bc|FILE.mlir")};
  cl::opt<std::string> kernel{"kernel",
                              cl::desc("kernel to run; default: the only one"),
                              cl::value_desc("NAME")};
  cl::opt<std::string> grid{"grid", cl::desc("blocks"), cl::init("1"),
                            cl::value_desc("X[,Y[,Z]]")};
  cl::opt<std::string> block{
      "block", cl::desc("threads per block; default: what the kernel requires"),
      cl::value_desc("X[,Y[,Z]]")};
  cl::opt<std::string> shared{"shared", cl::desc("dynamic shared memory"),
                              cl::init("0"), cl::value_desc("BYTES")};
  cl::list<std::string> arguments{"arg", cl::desc(argumentHelp),
                                  cl::value_desc("ARGUMENT")};
  cl::opt<std::string> checks{
      "checks",
      cl::desc("race, bounds, uninit, sync, counters, by commas; or all"),
      cl::init("all"), cl::value_desc("LIST")};
  cl::opt<std::string> seed{"seed",
                            cl::desc("order of the threads; 0: in turn"),
                            cl::init("0"), cl::value_desc("N")};
};

/// The emulation of one launch.
class Emulation {
public:
  explicit Emulation(const Options &options)
      : options(options), registry(makeRegistry()),
        context(registry, mlir::MLIRContext::Threading::DISABLED),
        warnings(&context, toolName) {}
  llvm::Error run();

private:
  static mlir::DialectRegistry makeRegistry() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }
  llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>> read();
  llvm::Error open();
  llvm::Expected<const moira_emu_kernel *> choose();
  llvm::Error launch(const moira_emu_kernel &kernel);

  const Options &options;
  mlir::DialectRegistry registry;
  mlir::MLIRContext context;
  WarningPrinter warnings;
  std::unique_ptr<EmulatedKernels> kernels;
  std::unique_ptr<EmulatedDevice> device;
};
} // namespace

llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>> Emulation::read() {
  if (!llvm::StringRef(options.file).ends_with(".mlir"))
    return importKernels(options.file, context);
  ErrorCollector errors(&context);
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(options.file, &context);
  if (!module)
    return errors.take(options.file + ": expected MLIR, got something else");
  return module;
}

llvm::Error Emulation::open() {
  EmulatedOptions settings;
  if (!emulator::parseChecks(options.checks, settings.checks))
    return llvm::createStringError(
        "--checks: expected race, bounds, uninit, sync, counters or all, got "
        "'%s'",
        options.checks.c_str());
  llvm::Expected<int64_t> seed = readNumber("seed", options.seed, 0, INT64_MAX);
  if (!seed)
    return seed.takeError();
  settings.seed = uint64_t(*seed);
  device = openEmulated(settings);

  auto module = read();
  if (!module)
    return module.takeError();
  auto gpuModules = (*module)->getOps<mlir::gpu::GPUModuleOp>();
  if (!llvm::hasSingleElement(gpuModules))
    return llvm::createStringError(
        "%s: expected one gpu.module, got %d", options.file.c_str(),
        int(std::distance(gpuModules.begin(), gpuModules.end())));
  std::string name = (*gpuModules.begin()).getName().str();
  auto compiled = EmulatedKernels::compile(**module, name);
  if (!compiled)
    return compiled.takeError();
  kernels = std::move(*compiled);
  return llvm::Error::success();
}

llvm::Expected<const moira_emu_kernel *> Emulation::choose() {
  const moira_emu_module &all = *kernels->description;
  std::string names;
  for (int32_t i = 0; i < all.kernel_count; ++i) {
    if (options.kernel == all.kernels[i].name ||
        (options.kernel.empty() && all.kernel_count == 1))
      return &all.kernels[i];
    names += (i ? ", " : "") + std::string(all.kernels[i].name);
  }
  return llvm::createStringError("--kernel: expected one of %s, got '%s'",
                                 names.empty() ? "no kernels" : names.c_str(),
                                 options.kernel.c_str());
}

/// "X[,Y[,Z]]".
static llvm::Expected<Dim3> readSizes(llvm::StringRef option,
                                      llvm::StringRef text) {
  Dim3 sizes;
  int32_t *fields[] = {&sizes.x, &sizes.y, &sizes.z};
  llvm::SmallVector<llvm::StringRef> parts;
  text.split(parts, ',');
  if (parts.size() > 3)
    return llvm::createStringError("--%s: expected up to three sizes, got '%s'",
                                   option.str().c_str(), text.str().c_str());
  for (auto [field, part] : llvm::zip(fields, parts)) {
    llvm::Expected<int64_t> size = readNumber(option, part, 1, INT32_MAX);
    if (!size)
      return size.takeError();
    *field = int32_t(*size);
  }
  return sizes;
}

llvm::Error Emulation::launch(const moira_emu_kernel &kernel) {
  LaunchShape shape;
  llvm::Expected<Dim3> grid = readSizes("grid", options.grid);
  if (!grid)
    return grid.takeError();
  shape.grid = *grid;
  std::string threads = options.block;
  if (threads.empty())
    threads = std::to_string(std::max(1, kernel.threads));
  llvm::Expected<Dim3> block = readSizes("block", threads);
  if (!block)
    return block.takeError();
  shape.block = *block;
  std::optional<int64_t> shared = parseBytes(options.shared);
  if (!shared)
    return llvm::createStringError("--shared: expected bytes, got '%s'",
                                   options.shared.c_str());
  shape.dynamicShared = *shared;
  if (int32_t(options.arguments.size()) != kernel.parameters)
    return llvm::createStringError(
        "--arg: expected %d arguments of '%s', got %d", kernel.parameters,
        kernel.name, int(options.arguments.size()));

  Result<DeviceQueue> queue = device->createQueue();
  if (!queue.ok())
    return toError(queue.status());
  std::vector<EmulatedArgument> arguments;
  for (auto [i, text] : llvm::enumerate(options.arguments)) {
    auto argument = readArgument(text, *device, *queue);
    if (!argument)
      return argument.takeError();
    if (argument->size != kernel.parameter_bytes[i])
      return llvm::createStringError(
          "--arg: expected %d bytes for parameter %d, got '%s'",
          kernel.parameter_bytes[i], int(i), text.c_str());
    arguments.push_back(std::move(*argument));
  }
  std::vector<KernelArgument> passed;
  for (const EmulatedArgument &argument : arguments)
    passed.push_back(argument.get());

  auto module = device->load(kernels->description, 0);
  if (!module.ok())
    return toError(module.status());
  auto found = device->find(*module, kernel.name);
  if (!found.ok())
    return toError(found.status());
  Status status = device->launch(**found, shape, passed, *queue);
  Status ended = device->synchronize(*queue);
  emulator::LaunchReport report = device->takeReport();
  if (!report.clean()) {
    llvm::errs() << report.text();
    return llvm::createStringError("expected no fault, got %lld",
                                   (long long)report.faultsInAll);
  }
  if (!status.ok() || !ended.ok())
    return toError(status.ok() ? ended : status);
  for (const EmulatedArgument &argument : arguments)
    if (llvm::Error error = writeArgument(argument, *device, *queue))
      return error;
  const emulator::Counters &counters = report.counters;
  llvm::outs() << kernel.name << ": no fault; " << counters.barriers
               << " barriers, " << counters.mma + counters.wgmma
               << " matrix products, " << counters.bankConflicts
               << " bank conflicts, " << counters.sectors << " sectors of "
               << counters.neededSectors << " needed\n";
  return llvm::Error::success();
}

llvm::Error Emulation::run() {
  if (llvm::Error error = open())
    return error;
  llvm::Expected<const moira_emu_kernel *> kernel = choose();
  return kernel ? launch(**kernel) : kernel.takeError();
}

int main(int argc, char **argv) {
  prepareTool();
  llvm::InitLLVM init(argc, argv);
  Options options;
  if (llvm::Error error = parseCommandLine(
          argc, argv, "Runs a kernel for NVIDIA GPUs on the processor\n"))
    return fail(toolName, std::move(error));
  if (llvm::Error error = Emulation(options).run())
    return fail(toolName, std::move(error));
  return 0;
}
