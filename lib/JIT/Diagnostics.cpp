// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/JIT/Diagnostics.h"

#include "mlir/IR/Location.h"
#include "llvm/Support/raw_ostream.h"

using namespace moira;

/// The place in a file that a location stands for, or none.
static mlir::FileLineColLoc findPlace(mlir::Location location) {
  mlir::FileLineColLoc place;
  location->walk([&](mlir::Location part) {
    place = llvm::dyn_cast<mlir::FileLineColLoc>(part);
    return place ? mlir::WalkResult::interrupt() : mlir::WalkResult::advance();
  });
  return place;
}

ErrorCollector::ErrorCollector(mlir::MLIRContext *context)
    : handler(context, [this](mlir::Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error)
          return mlir::failure();
        if (!first.empty())
          return mlir::success();
        llvm::raw_string_ostream stream(first);
        if (mlir::FileLineColLoc place = findPlace(diagnostic.getLocation()))
          stream << place.getFilename().getValue() << ':' << place.getLine()
                 << ':' << place.getColumn() << ": ";
        // One line, whatever an operation prints like.
        std::string text = diagnostic.str();
        std::replace(text.begin(), text.end(), '\n', ' ');
        stream << text;
        return mlir::success();
      }) {}

llvm::Error ErrorCollector::take(const llvm::Twine &otherwise) {
  std::string text = first.empty() ? otherwise.str() : std::move(first);
  first.clear();
  return llvm::createStringError(text);
}
