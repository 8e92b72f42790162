// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_UNITTESTS_IO_TESTFILES_H
#define MOIRA_UNITTESTS_IO_TESTFILES_H

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace moira::test {

/// A folder of its own for one test, removed with its content at the end.
class TempFolder {
public:
  TempFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "moira-io-XXXXXX").string();
    root = mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(root, ignored);
  }

  std::string path(const std::string &name) const { return root + "/" + name; }
  const std::string &folder() const { return root; }

  void write(const std::string &name, const std::string &content) const {
    std::ofstream(path(name), std::ios::binary) << content;
  }

  /// Files in the folder, hidden and temporary ones too.
  int count() const {
    int files = 0;
    for (const auto &entry : std::filesystem::directory_iterator(root)) {
      (void)entry;
      ++files;
    }
    return files;
  }

private:
  std::string root;
};

} // namespace moira::test

#endif // MOIRA_UNITTESTS_IO_TESTFILES_H
