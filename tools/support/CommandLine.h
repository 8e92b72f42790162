// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What our command-line tools share. Every error is one line on stderr,
// "TOOL: error: MESSAGE", and exit code 1.

#ifndef MOIRA_TOOLS_SUPPORT_COMMANDLINE_H
#define MOIRA_TOOLS_SUPPORT_COMMANDLINE_H

#include "base/Status.h"
#include "moira/Dialect/MoE/Transforms/Fusions.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Error.h"

#include <functional>
#include <optional>
#include <string>

namespace moira::tools {

/// Prints the first line of `error` and returns 1.
int fail(llvm::StringRef tool, llvm::Error error);

llvm::Error toError(const Status &status);

/// Before the tool's own options are made: forgets those that libraries have
/// registered, some of them under names that a tool wants, and says whose bug a
/// crash is.
void prepareTool();

/// Parses the command line.
llvm::Error parseCommandLine(int argc, char **argv, llvm::StringRef overview);

/// Whether the file's first bytes, or else its name, say that it is a bundle.
bool looksLikeBundle(llvm::StringRef path);

/// Reads the value of `option` as a number between `least` and `most`. Numbers
/// are options of type string, so that their errors look like all others.
llvm::Expected<int64_t> readNumber(llvm::StringRef option, llvm::StringRef text,
                                   int64_t least, int64_t most);

/// The same of an option, into a field that stays as it is where the option is
/// not given and has no default.
template <typename T>
llvm::Error readInto(T &field, const llvm::cl::opt<std::string> &option,
                     int64_t least, int64_t most) {
  if (option.getNumOccurrences() == 0 && option.empty())
    return llvm::Error::success();
  llvm::Expected<int64_t> number =
      readNumber(option.ArgStr, option.getValue(), least, most);
  if (!number)
    return number.takeError();
  field = *number;
  return llvm::Error::success();
}

/// That none of `others` is given beside `option`.
llvm::Error expectNone(
    llvm::StringRef option,
    llvm::ArrayRef<std::reference_wrapper<const llvm::cl::Option>> others);

/// "--option: expected what, got 'got'".
llvm::Error expected(llvm::StringRef option, const llvm::Twine &what,
                     const llvm::Twine &got);

/// That the folder of a file that will be written is there. Nothing to say of
/// an empty path.
llvm::Error checkFolder(llvm::StringRef option, llvm::StringRef path);

/// The folder of compiled programs that --cache-dir names, which is made, or
/// the usual one, which need not be there. Stays as it is where --no-cache says
/// so, and without a home folder.
llvm::Error readCacheFolder(std::string &folder,
                            const llvm::cl::opt<std::string> &cacheDir,
                            bool noCache);

/// The values of --disable-fusion, which both compiling tools have.
llvm::Expected<mlir::moe::Fusions>
readFusions(const llvm::cl::list<std::string> &option);
/// What --help says of it; lasts.
llvm::StringRef disableFusionHelp();

/// "4.2 MB", "805.3 MB".
std::string formatBytes(double bytes);
/// "1.25 s", "37.5 ms", "4.25 us".
std::string formatSeconds(double seconds);

/// Reads "4096", "512M", "4G" (powers of 1024). Nothing where the text is no
/// such number, or is negative or too large.
std::optional<int64_t> parseBytes(llvm::StringRef text);

/// Prints warnings of a context as "TOOL: warning: FILE:LINE:COLUMN: TEXT", and
/// remarks likewise.
class WarningPrinter {
public:
  WarningPrinter(mlir::MLIRContext *context, llvm::StringRef tool);

private:
  mlir::ScopedDiagnosticHandler handler;
};

/// Lets a context print the remarks whose category matches a regular
/// expression; none for an empty one. Also needs a WarningPrinter.
llvm::Error enableRemarks(mlir::MLIRContext &context, llvm::StringRef filter);

} // namespace moira::tools

#endif // MOIRA_TOOLS_SUPPORT_COMMANDLINE_H
