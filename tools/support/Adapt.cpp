// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "support/Adapt.h"

#include "support/CommandLine.h"

#include "base/Draws.h"
#include "io/AtomicFile.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;
namespace cl = llvm::cl;

AdaptCommandLine::AdaptCommandLine(cl::OptionCategory &category)
    : adapt("adapt", cl::value_desc("fixed|model|measured"), cl::cat(category),
            cl::desc("Decide in each step what layers run with (variant, "
                     "degree, exchange, shadows), from the loads of the last "
                     "one: by the model of costs, or corrected by measured "
                     "times; fixed decides for the other options")),
      lag("lag", cl::init("1"), cl::value_desc("0|1"), cl::cat(category),
          cl::desc("With --adapt: decide degree and exchange from the step's "
                   "own loads (0), or everything from the last step's "
                   "(default: 1)")),
      calibration("calibration", cl::value_desc("file"), cl::cat(category),
                  cl::desc("With --adapt: what this machine takes, as "
                           "--calibrate writes it (default: assumed)")),
      flightLog("flight-log", cl::value_desc("file"), cl::cat(category),
                cl::desc("With --adapt: write what decisions were made from")),
      replay("replay", cl::value_desc("file"), cl::cat(category),
             cl::desc("Make the decisions of a flight log again, and follow "
                      "them")),
      learned("learned", cl::value_desc("file"), cl::cat(category),
              cl::desc("With --adapt: begin with what an earlier run has "
                       "learned, if the file is there, and write it at the "
                       "end")),
      random("plan-random", cl::value_desc("seed"), cl::cat(category),
             cl::desc("Run each step with any plan that is legal")),
      statistics("statistics", cl::value_desc("file"), cl::cat(category),
                 cl::desc("Write a line of JSON for each step of each rank")),
      explain("explain", cl::cat(category),
              cl::desc("With --adapt: print all plans that there were to "
                       "choose from in the last step, and why")),
      deterministic("deterministic", cl::cat(category),
                    cl::desc("With --adapt: only variants that give the same "
                             "bits as the first plan")) {}

llvm::Error AdaptCommandLine::read(AdaptChoices &choices,
                                   const RankOptions &ranks) const {
  if (adapt.getNumOccurrences() > 0) {
    choices.adapt = true;
    if (adapt == "model")
      choices.mode = SelectionMode::Model;
    else if (adapt == "measured")
      choices.mode = SelectionMode::Measured;
    else if (adapt != "fixed")
      return llvm::createStringError(
          "--adapt: expected fixed, model or measured, got '" + adapt + "'");
  }
  if (random.getNumOccurrences() > 0) {
    uint64_t seed = 0;
    if (llvm::Error error = readInto(seed, random, 0, INT64_MAX))
      return error;
    choices.random = seed;
  }
  if (llvm::Error error = readInto(choices.lag, lag, 0, 1))
    return error;
  for (const cl::Option *option : std::initializer_list<const cl::Option *>{
           &lag, &calibration, &flightLog, &learned, &explain, &deterministic})
    if (option->getNumOccurrences() > 0 && !choices.adapt &&
        (option == &flightLog || replay.empty() || option == &learned) &&
        !(choices.random && option != &lag))
      return llvm::createStringError("--" + option->ArgStr +
                                     ": expected --adapt beside it, got none");
  if (!replay.empty() && (choices.adapt || choices.random))
    return llvm::createStringError(
        "--replay: expected neither --adapt nor --plan-random beside it, since "
        "the log says what is chosen, got one");
  if (choices.adapt && choices.random)
    return llvm::createStringError(
        "--plan-random: expected no --adapt beside it, got one");
  choices.adapt = choices.adapt || !replay.empty() || choices.random;
  // Who adapts chooses shadows, too.
  if (choices.adapt &&
      (ranks.shadows.hottest > 0 || !ranks.shadows.experts.empty()))
    return expectNone("shadows", {adapt, random, replay});
  for (const cl::opt<std::string> *option : {&flightLog, &learned, &statistics})
    if (llvm::Error error = checkFolder(option->ArgStr, *option))
      return error;
  choices.explain = explain;
  choices.deterministic = deterministic;
  choices.calibration = calibration;
  choices.flightLog = flightLog;
  choices.replay = replay;
  choices.learned = learned;
  choices.statistics = statistics;
  return llvm::Error::success();
}

static llvm::Expected<std::string> readText(llvm::StringRef option,
                                            const std::string &path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return llvm::createStringError("--" + option + ": " + path +
                                   ": expected a file, got '" +
                                   buffer.getError().message() + "'");
  return (*buffer)->getBuffer().str();
}

llvm::Expected<Calibration> tools::readCalibration(const std::string &path) {
  llvm::Expected<std::string> text = readText("calibration", path);
  if (!text)
    return text.takeError();
  auto calibration = Calibration::parse(*text, path);
  if (!calibration.ok())
    return toError(calibration.status());
  return *calibration;
}

/// What all ranks decide with, but for the fixed candidate.
static llvm::Expected<AdaptOptions> makeOptions(const RankOptions &ranks,
                                                const AdaptChoices &choices) {
  AdaptOptions options;
  options.selection.mode = choices.mode;
  options.selection.lag = choices.lag;
  options.flightLog = choices.flightLog;
  options.replay = choices.replay;
  if (!llvm::is_contained(options.degrees, int(ranks.degree)))
    options.degrees.push_back(ranks.degree);
  if (!ranks.topology.empty()) {
    Result<Topology> topology = Topology::read(ranks.topology);
    if (!topology.ok())
      return toError(topology.status());
    options.topology = std::move(*topology);
  }
  if (!choices.calibration.empty()) {
    llvm::Expected<Calibration> calibration =
        readCalibration(choices.calibration);
    if (!calibration)
      return calibration.takeError();
    options.calibration = std::move(*calibration);
  }
  return options;
}

/// The place of the candidate that the other options describe, and what class
/// it is of. Without such a one: the first.
static int findFixed(const std::vector<Candidate> &candidates,
                     const EntrySpec &entry, const RankOptions &ranks,
                     const std::string &variant) {
  int copies = static_cast<int>(ranks.copies);
  int schedule = ranks.schedule == mlir::moe::Schedule::Equal
                     ? MOIRA_SCHEDULE_EQUAL
                     : MOIRA_SCHEDULE_GROUPS;
  if (int index = entry.findVariant(variant); index >= 0) {
    copies = entry.variants[index].copies;
    schedule = entry.variants[index].scheduleOfPlans();
  }
  int best = 0, most = -1;
  for (size_t c = 0; c < candidates.size(); ++c) {
    const LayerPlan &plan = candidates[c].plan;
    int fits = 16 * (plan.copies == copies) + 8 * (plan.schedule == schedule) +
               4 * (plan.shadows == 0) + 2 * (plan.degree == ranks.degree) +
               (plan.exchange == ranks.exchange);
    if (fits > most) {
      most = fits;
      best = static_cast<int>(c);
    }
  }
  return best;
}

/// The numerics class of a candidate: of the first variant that it may be.
static std::string numericsOf(const Candidate &candidate,
                              const EntrySpec &entry) {
  for (const VariantSpec &variant : entry.variants)
    if (variant.copies == candidate.plan.copies &&
        variant.scheduleOfPlans() == candidate.plan.schedule)
      return variant.numerics;
  return "";
}

llvm::Error tools::startAdapting(const Grid &grid, Sessions sessions,
                                 const std::string &name,
                                 const RankOptions &ranks,
                                 const std::string &variant,
                                 const AdaptChoices &choices) {
  if (!choices.adapt)
    return llvm::Error::success();
  llvm::Expected<AdaptOptions> options = makeOptions(ranks, choices);
  if (!options)
    return options.takeError();
  std::string learned;
  if (!choices.learned.empty() && llvm::sys::fs::exists(choices.learned)) {
    llvm::Expected<std::string> text = readText("learned", choices.learned);
    if (!text)
      return text.takeError();
    learned = std::move(*text);
  }
  // Candidates are known once somebody could choose among them.
  AdaptOptions all = *options;
  all.flightLog.clear();
  all.replay.clear();
  Session &first = *sessions.front();
  const EntrySpec &entry =
      first.manifest().entries[first.manifest().findEntry(name)];
  if (Status status = first.adapt(name, all); !status.ok())
    return toError(status.within("--adapt"));
  std::vector<Candidate> candidates = *first.candidates(name);
  options->selection.fixed = findFixed(candidates, entry, ranks, variant);
  if (choices.deterministic)
    options->selection.numerics =
        numericsOf(candidates[options->selection.fixed], entry);
  for (size_t i = 0; i < sessions.size(); ++i) {
    Status status = sessions[i]->adapt(name, *options);
    if (status.ok() && !learned.empty())
      status = sessions[i]->loadLearned(name, learned).within(choices.learned);
    if (!status.ok())
      return toError(
          status.within(choices.replay.empty() ? "--adapt" : "--replay"));
  }
  return llvm::Error::success();
}

Status tools::forceRandom(Session &session, const std::string &entry,
                          uint64_t seed, int64_t step) {
  Result<std::vector<Candidate>> all = session.candidates(entry);
  if (!all.ok())
    return all.status();
  Draws draws({uint32_t(seed), uint32_t(seed >> 32)}, uint32_t(step));
  return session.forceCandidate(
      entry, (*all)[draws.below(int64_t(all->size()))].describe());
}

llvm::Error tools::saveLearned(const Grid &grid, Sessions sessions,
                               const std::string &entry,
                               const AdaptChoices &choices) {
  if (choices.learned.empty() || !grid.isFirst())
    return llvm::Error::success();
  Result<std::string> text = sessions.front()->saveLearned(entry);
  if (!text.ok())
    return toError(text.status().within("--learned"));
  return toError(
      io::writeFile(choices.learned, text->data(), int64_t(text->size()))
          .within("--learned"));
}

llvm::Expected<std::string> tools::explainText(const Session &session,
                                               const std::string &entry) {
  Result<std::vector<Explanation>> list = session.explain(entry);
  if (!list.ok())
    return toError(list.status().within("--explain"));
  Result<std::vector<Candidate>> candidates = session.candidates(entry);
  if (!candidates.ok())
    return toError(candidates.status().within("--explain"));
  const Manifest &manifest = session.manifest();
  const EntrySpec &spec = manifest.entries[manifest.findEntry(entry)];
  std::string text;
  for (size_t i = 0; i < list->size(); ++i)
    text += concat("layer ", spec.layers[i].index, ", ",
                   (*list)[i].toText(*candidates));
  return text;
}

llvm::Expected<std::shared_ptr<JsonLinesFile>>
tools::openStatistics(const Grid &grid, const AdaptChoices &choices) {
  if (choices.statistics.empty())
    return nullptr;
  auto file = JsonLinesFile::open(grid.fileOf(choices.statistics));
  if (!file.ok())
    return toError(file.status().within("--statistics"));
  return *file;
}

std::vector<std::shared_ptr<StatisticsSink>>
tools::sinksOf(const std::shared_ptr<JsonLinesFile> &file,
               const Manifest &manifest, int rank) {
  if (!file)
    return {};
  return {std::make_shared<JsonLinesSink>(file, manifest, rank)};
}
