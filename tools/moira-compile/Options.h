// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_MOIRA_COMPILE_OPTIONS_H
#define MOIRA_TOOLS_MOIRA_COMPILE_OPTIONS_H

#include "support/CommandLine.h"

#include "moira/JIT/Variants.h"
#include "moira/jit.h"

#include <optional>
#include <string>

namespace moira::tools {

/// The command line. A struct, so that options are registered when main asks
/// for them.
struct CommandLine {
  llvm::cl::OptionCategory category{"moira-compile options"};
  llvm::cl::opt<std::string> input{
      llvm::cl::Positional, llvm::cl::desc("FILE.mlir | FILE.moira"),
      llvm::cl::init("-"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> output{
      "o", llvm::cl::value_desc("file"), llvm::cl::cat(category),
      llvm::cl::desc(
          "Where the result goes; '-' is standard output. Default: "
          "FILE.moira or FILE.o in the current folder, text to standard "
          "output")};
  llvm::cl::opt<std::string> emit{
      "emit", llvm::cl::init("bundle"),
      llvm::cl::value_desc("bundle|object|llvm|asm"), llvm::cl::cat(category),
      llvm::cl::desc("What to make (default: bundle)")};
  llvm::cl::opt<std::string> compileTo{
      "compile-to",
      llvm::cl::value_desc("input|sharded|differentiated|scheduled|kernels|"
                           "bufferized|target"),
      llvm::cl::cat(category),
      llvm::cl::desc("Stop after this phase and print the IR")};
  llvm::cl::opt<std::string> dumpPhases{
      "dump-phases", llvm::cl::value_desc("folder"), llvm::cl::cat(category),
      llvm::cl::desc("Also write the IR after each phase into this folder")};
  llvm::cl::opt<std::string> cpu{
      "target-cpu", llvm::cl::init("host"), llvm::cl::value_desc("name"),
      llvm::cl::cat(category),
      llvm::cl::desc(
          "Processor to compile for: host (default), x86-64-v3, ...")};
  llvm::cl::opt<std::string> optLevel{
      "O",
      llvm::cl::Prefix,
      llvm::cl::init("3"),
      llvm::cl::value_desc("level"),
      llvm::cl::cat(category),
      llvm::cl::desc("Optimisation level, 0 to 3 (default)")};
  llvm::cl::list<std::string> rows{
      "rows", llvm::cl::CommaSeparated, llvm::cl::value_desc("decode,prefill"),
      llvm::cl::cat(category),
      llvm::cl::desc("Row classes to compile variants for (default: all)")};
  llvm::cl::opt<std::string> entry{
      "entry", llvm::cl::value_desc("function"), llvm::cl::cat(category),
      llvm::cl::desc(
          "Function to compile (default: the public one, or @main)")};
  llvm::cl::opt<bool> oracle{
      "oracle", llvm::cl::cat(category),
      llvm::cl::desc("Compile the decomposed program, the "
                     "executable meaning of every operation")};
  llvm::cl::opt<bool> gradients{
      "gradients", llvm::cl::cat(category),
      llvm::cl::desc(
          "Add the way back: a second entry that computes gradients")};
  llvm::cl::opt<bool> recompute{
      "moe-recompute", llvm::cl::cat(category),
      llvm::cl::desc(
          "With --gradients: keep less of the forward pass, and compute "
          "it again on the way back")};
  llvm::cl::opt<bool> packGradients{
      "pack-gradients", llvm::cl::cat(category),
      llvm::cl::desc(
          "With --gradients: gradients of packed parameters come packed")};
  llvm::cl::list<std::string> updates{
      "optimizer", llvm::cl::CommaSeparated,
      llvm::cl::value_desc("sgd,adam,adamw"), llvm::cl::cat(category),
      llvm::cl::desc("With --gradients: bring the code of these optimizers")};
  llvm::cl::list<std::string> disableFusion{
      "disable-fusion", llvm::cl::CommaSeparated, llvm::cl::value_desc("names"),
      llvm::cl::cat(category), llvm::cl::desc(disableFusionHelp())};
  llvm::cl::list<std::string> grid{
      "grid", llvm::cl::CommaSeparated, llvm::cl::value_desc("ranks"),
      llvm::cl::cat(category),
      llvm::cl::desc(
          "Ranks that run the program together, or several numbers of "
          "them, of which a run takes one (default: 1)")};
  llvm::cl::opt<std::string> variants{
      "variants", llvm::cl::value_desc("list"), llvm::cl::cat(category),
      llvm::cl::desc(
          "Put several variants into the bundle: \"r=auto "
          "schedule=equal,groups rows=decode,prefill\" is all that are "
          "legal; r takes numbers, too")};
  llvm::cl::opt<bool> qualify{
      "qualify", llvm::cl::cat(category),
      llvm::cl::desc(
          "With --variants: run every variant on a twin of the program "
          "with small tensors and say in the bundle which gave the bits of "
          "the decomposed program")};
  llvm::cl::opt<std::string> remarks{
      "remarks-filter", llvm::cl::value_desc("regex"), llvm::cl::cat(category),
      llvm::cl::desc("Print remarks of these categories, such as moe-variants, "
                     "which names what was left out and why")};
  llvm::cl::opt<std::string> copies{
      "r", llvm::cl::init("1"), llvm::cl::value_desc("number"),
      llvm::cl::cat(category),
      llvm::cl::desc("How often rows travel: 0 gathers weights instead, else a "
                     "divisor of the ranks that share an expert (default: 1)")};
  llvm::cl::opt<std::string> schedule{
      "schedule", llvm::cl::init("equal"), llvm::cl::value_desc("equal|groups"),
      llvm::cl::cat(category),
      llvm::cl::desc(
          "How exchanges are cut: in equal chunks, as many as the plan's "
          "degree (default), or by groups of ranks")};
  llvm::cl::opt<std::string> spareSlots{
      "spare-slots", llvm::cl::init("0"), llvm::cl::value_desc("number"),
      llvm::cl::cat(category),
      llvm::cl::desc("Slots of each rank beyond those that the experts need "
                     "(default: 0)")};
  llvm::cl::opt<std::string> hiddenBlocks{
      "hidden-blocks", llvm::cl::value_desc("number"), llvm::cl::cat(category),
      llvm::cl::desc(
          "Blocks that the hidden dimension of experts is summed in; "
          "bundles with the same number agree bit for bit (default: the "
          "ranks that share an expert)")};
  llvm::cl::list<std::string> target{
      "target", llvm::cl::CommaSeparated,
      llvm::cl::value_desc("cpu|cuda,emulated"), llvm::cl::cat(category),
      llvm::cl::desc(
          "What steps run on: cpu (default), cuda, the emulated GPU, or "
          "both of these")};
  llvm::cl::list<std::string> arch{
      "arch", llvm::cl::CommaSeparated, llvm::cl::value_desc("sm_80,sm_90a"),
      llvm::cl::cat(category),
      llvm::cl::desc("With --target: the GPUs to compile for "
                     "(default: sm_80)")};
  llvm::cl::opt<bool> describe{
      "describe", llvm::cl::cat(category),
      llvm::cl::desc("Print what the bundle holds; with a "
                     "program, compile it for that")};
  llvm::cl::opt<std::string> calibration{
      "calibration", llvm::cl::value_desc("file"), llvm::cl::cat(category),
      llvm::cl::desc(
          "With --describe: predict times for this machine, as moira-run "
          "--calibrate measured it (default: an assumed machine)")};
  llvm::cl::opt<bool> json{"json", llvm::cl::cat(category),
                           llvm::cl::desc("With --describe: print JSON")};
};

/// What compilation is asked for, but for variants.
llvm::Expected<JitOptions> makeOptions(const CommandLine &line);

/// Several grids or variants; nothing for one program of one form.
llvm::Expected<std::optional<VariantOptions>>
readVariants(const CommandLine &line, PipelineOptions &pipeline);

/// Where compilation stops.
llvm::Expected<Phase> readPhase(const CommandLine &line, bool hasVariants);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_COMPILE_OPTIONS_H
