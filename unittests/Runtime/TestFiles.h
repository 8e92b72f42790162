// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files for tests.

#ifndef MOIRA_UNITTESTS_RUNTIME_TESTFILES_H
#define MOIRA_UNITTESTS_RUNTIME_TESTFILES_H

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace moira::test {

/// A folder of its own for one test, removed at the end.
class TestFolder {
public:
  TestFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "moira-test-XXXXXX").string();
    root = mkdtemp(pattern.data());
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(root, ignored);
  }
  std::string path(const std::string &name) const { return root + "/" + name; }
  bool empty() const { return std::filesystem::is_empty(root); }

private:
  std::string root;
};

inline std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void writeFile(const std::string &path, const std::string &content) {
  std::ofstream(path, std::ios::binary) << content;
}

} // namespace moira::test

#endif // MOIRA_UNITTESTS_RUNTIME_TESTFILES_H
