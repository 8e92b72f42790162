// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "support/CommandLine.h"

#include "moira/runtime.h"
#include "session/BundleFormat.h"

#include "mlir/IR/Remarks.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/PrettyStackTrace.h"
#include "llvm/Support/Regex.h"
#include "llvm/Support/raw_ostream.h"

using namespace moira;

int tools::fail(llvm::StringRef tool, llvm::Error error) {
  std::string text = llvm::toString(std::move(error));
  if (text.empty())
    return 1;
  llvm::errs() << tool << ": error: " << llvm::StringRef(text).split('\n').first
               << '\n';
  return 1;
}

llvm::Error tools::toError(const Status &status) {
  if (status.ok())
    return llvm::Error::success();
  return llvm::createStringError(status.message);
}

void tools::prepareTool() {
  llvm::cl::ResetCommandLineParser();
  llvm::setBugReportMsg("moira: internal error; please report it with the "
                        "program and the lines below\n");
}

llvm::Error tools::parseCommandLine(int argc, char **argv,
                                    llvm::StringRef overview) {
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &stream) {
    stream << "moira " << moira_version() << '\n';
  });
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (llvm::cl::ParseCommandLineOptions(argc, argv, overview, &stream))
    return llvm::Error::success();
  // Errors in an option's value have been printed; the text is empty then. Else
  // "TOOL: text.  Try: 'PATH --help'", perhaps with a second line.
  llvm::StringRef line = llvm::StringRef(text).split('\n').first;
  line = line.split("  Try: ").first.rtrim(".! ");
  size_t place = line.find(": ");
  if (place != llvm::StringRef::npos)
    line = line.substr(place + 2);
  std::string message = line.str();
  if (!message.empty())
    message[0] = llvm::toLower(message[0]);
  return llvm::createStringError(message);
}

bool tools::looksLikeBundle(llvm::StringRef path) {
  char magic[sizeof(runtime::bundleMagic)];
  llvm::Expected<llvm::sys::fs::file_t> file =
      llvm::sys::fs::openNativeFileForRead(path);
  if (!file) {
    llvm::consumeError(file.takeError());
    return llvm::sys::path::extension(path) == ".moira";
  }
  llvm::Expected<size_t> bytes = llvm::sys::fs::readNativeFile(
      *file, llvm::MutableArrayRef<char>(magic, sizeof(magic)));
  (void)llvm::sys::fs::closeFile(*file);
  if (!bytes)
    llvm::consumeError(bytes.takeError());
  else if (*bytes == sizeof(magic) &&
           std::memcmp(magic, runtime::bundleMagic, sizeof(magic)) == 0)
    return true;
  return llvm::sys::path::extension(path) == ".moira";
}

llvm::Expected<int64_t> tools::readNumber(llvm::StringRef option,
                                          llvm::StringRef text, int64_t least,
                                          int64_t most) {
  int64_t number = 0;
  if (!text.getAsInteger(10, number) && number >= least && number <= most)
    return number;
  std::string range =
      most == INT64_MAX ? " or more" : " to " + llvm::itostr(most);
  llvm::StringRef dashes = option.size() == 1 ? "-" : "--";
  return llvm::createStringError(dashes + option + ": expected a number, " +
                                 llvm::Twine(least) + range + ", got '" + text +
                                 "'");
}

llvm::Error tools::expectNone(
    llvm::StringRef option,
    llvm::ArrayRef<std::reference_wrapper<const llvm::cl::Option>> others) {
  for (const llvm::cl::Option &other : others)
    if (other.getNumOccurrences() > 0)
      return llvm::createStringError("--" + option + ": expected no --" +
                                     other.ArgStr + " beside it, got one");
  return llvm::Error::success();
}

llvm::Error tools::expected(llvm::StringRef option, const llvm::Twine &what,
                            const llvm::Twine &got) {
  return llvm::createStringError("--" + option + ": expected " + what +
                                 ", got '" + got + "'");
}

llvm::Error tools::checkFolder(llvm::StringRef option, llvm::StringRef path) {
  llvm::StringRef folder = llvm::sys::path::parent_path(path);
  if (folder.empty() || llvm::sys::fs::is_directory(folder))
    return llvm::Error::success();
  return llvm::createStringError("--" + option + ": " + path +
                                 ": expected an existing folder, got '" +
                                 folder + "'");
}

llvm::Error tools::readCacheFolder(std::string &folder,
                                   const llvm::cl::opt<std::string> &cacheDir,
                                   bool noCache) {
  if (noCache)
    return llvm::Error::success();
  llvm::SmallString<128> path(cacheDir.getValue());
  if (path.empty()) {
    if (!llvm::sys::path::cache_directory(path))
      return llvm::Error::success();
    llvm::sys::path::append(path, "moira");
  } else if (std::error_code error = llvm::sys::fs::create_directories(path)) {
    return llvm::createStringError("--" + cacheDir.ArgStr + ": " + path +
                                   ": expected a folder, got '" +
                                   error.message() + "'");
  }
  folder = std::string(path);
  return llvm::Error::success();
}

llvm::Expected<mlir::moe::Fusions>
tools::readFusions(const llvm::cl::list<std::string> &option) {
  llvm::SmallVector<std::string> names(option.begin(), option.end());
  llvm::Expected<mlir::moe::Fusions> fusions = mlir::moe::parseFusions(names);
  if (fusions)
    return fusions;
  return llvm::createStringError("--" + option.ArgStr + ": " +
                                 llvm::toString(fusions.takeError()));
}

llvm::StringRef tools::disableFusionHelp() {
  static const std::string text = "Fusions to leave out, of " +
                                  mlir::moe::listFusions() +
                                  " (default: none; no result changes)";
  return text;
}

std::string tools::formatBytes(double bytes) {
  static constexpr const char *units[] = {"B", "kB", "MB", "GB", "TB"};
  unsigned unit = 0;
  for (; bytes >= 1000 && unit + 1 < std::size(units); ++unit)
    bytes /= 1000;
  std::string text;
  llvm::raw_string_ostream(text)
      << llvm::format(unit == 0 ? "%.0f" : "%.1f", bytes) << ' ' << units[unit];
  return text;
}

std::string tools::formatSeconds(double seconds) {
  static constexpr const char *units[] = {"s", "ms", "us"};
  unsigned unit = 0;
  for (; seconds < 1 && unit + 1 < std::size(units); ++unit)
    seconds *= 1000;
  std::string text;
  llvm::raw_string_ostream(text)
      << llvm::format("%.*f", seconds < 10 ? 2 : 1, seconds) << ' '
      << units[unit];
  return text;
}

std::optional<int64_t> tools::parseBytes(llvm::StringRef text) {
  static constexpr llvm::StringLiteral suffixes = "KMGT";
  unsigned shift = 0;
  if (!text.empty()) {
    size_t place = suffixes.find(llvm::toUpper(text.back()));
    if (place != llvm::StringRef::npos) {
      shift = 10 * (place + 1);
      text = text.drop_back();
    }
  }
  int64_t number = 0;
  if (text.getAsInteger(10, number) || number < 0 ||
      number > (INT64_MAX >> shift))
    return std::nullopt;
  return number << shift;
}

tools::WarningPrinter::WarningPrinter(mlir::MLIRContext *context,
                                      llvm::StringRef tool)
    : handler(context, [tool = tool.str()](mlir::Diagnostic &diagnostic) {
        bool isRemark =
            diagnostic.getSeverity() == mlir::DiagnosticSeverity::Remark;
        if (!isRemark &&
            diagnostic.getSeverity() != mlir::DiagnosticSeverity::Warning)
          return mlir::failure();
        llvm::errs() << tool << (isRemark ? ": remark: " : ": warning: ");
        if (auto place =
                llvm::dyn_cast<mlir::FileLineColLoc>(diagnostic.getLocation()))
          llvm::errs() << place.getFilename().getValue() << ':'
                       << place.getLine() << ':' << place.getColumn() << ": ";
        llvm::errs() << diagnostic.str() << '\n';
        return mlir::success();
      }) {}

llvm::Error tools::enableRemarks(mlir::MLIRContext &context,
                                 llvm::StringRef filter) {
  if (filter.empty())
    return llvm::Error::success();
  std::string error;
  if (!llvm::Regex(filter).isValid(error))
    return llvm::createStringError(
        "--remarks-filter: expected a regular expression, got '" + filter +
        "' (" + error + ")");
  mlir::remark::RemarkCategories categories;
  for (auto *kind : {&categories.passed, &categories.missed,
                     &categories.analysis, &categories.failed})
    *kind = filter.str();
  if (mlir::failed(mlir::remark::enableOptimizationRemarks(
          context, nullptr,
          std::make_unique<mlir::remark::RemarkEmittingPolicyAll>(), categories,
          /*printAsEmitRemarks=*/true)))
    return llvm::createStringError(
        "--remarks-filter: expected remarks to start, got a failure");
  return llvm::Error::success();
}
