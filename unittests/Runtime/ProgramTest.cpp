// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs, and host code loaded from memory.

#include "Runtime/TestFiles.h"
#include "Runtime/TestProgram.h"
#include "session/HostCode.h"

#include <cstring>
#include <elf.h>
#include <thread>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

static const std::string &moduleImage() {
  static const std::string image = readFile(MOIRA_TEST_MODULE);
  return image;
}

static Result<std::shared_ptr<const Program>>
loadBundle(const Manifest &manifest, const std::string &code,
           const std::string &packed = "") {
  std::string json = manifest.serialize();
  std::vector<unsigned char> bytes = encodeBundle({json, code, packed});
  auto file = BundleFile::read(bytes.data(), bytes.size());
  EXPECT_OK(file.status());
  return Program::load(*file);
}

static void checkRuns(std::shared_ptr<const Program> program) {
  auto session = testSession(std::move(program));
  TestWeights weights = TestWeights::integers();
  weights.bind(*session);
  std::vector<float> x = integerRows(11);
  std::vector<ResultTensor> results;
  EXPECT_OK(session->invoke("main", {view(x, {11, 4})}, results));
  EXPECT_EQ(values(results[0]), weights.expect(x));
}

TEST(Program, MissingSymbolsAreNamed) {
  auto program = Program::create(testManifest(), [](const char *) {
    return static_cast<void *>(nullptr);
  });
  EXPECT_ERROR(program.status(), MOIRA_NOT_FOUND,
               "expected symbol 'moira_step_main_decode' in the program's "
               "code, got none");
}

TEST(Program, LoadsFromABundle) {
  auto program = loadBundle(testManifest(), moduleImage());
  ASSERT_TRUE(program.ok()) << program.status().message;
  checkRuns(*program);
  EXPECT_EQ((*program)->manifestText(), testManifest().serialize());
}

TEST(Program, BundlesDoNotMix) {
  // Loaded, dropped and loaded again, with others in between: the dynamic
  // linker must not hand out an earlier one.
  auto first = loadBundle(testManifest(), moduleImage());
  for (int round = 0; round < 5; ++round) {
    auto other = loadBundle(testManifest(), moduleImage());
    ASSERT_TRUE(first.ok() && other.ok());
    EXPECT_NE((*first)->step(0, 0), (*other)->step(0, 0));
    checkRuns(*other);
    first = other;
  }
  checkRuns(*first);
}

TEST(Program, ManyThreadsLoad) {
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user)
    users.emplace_back([] {
      for (int round = 0; round < 5; ++round) {
        auto program = loadBundle(testManifest(), moduleImage());
        ASSERT_TRUE(program.ok()) << program.status().message;
        checkRuns(*program);
      }
    });
  for (std::thread &user : users)
    user.join();
}

TEST(Program, PackedParametersComeWithTheBundle) {
  TestWeights weights = TestWeights::integers();
  std::vector<float> packed(36);
  for (int e = 0; e < 2; ++e)
    for (int n = 0; n < 4; ++n)
      for (int k = 0; k < 4; ++k)
        packed[e * 16 + k * 4 + n] = weights.weight[e * 16 + n * 4 + k];
  std::copy(weights.bias.begin(), weights.bias.end(), packed.begin() + 32);
  std::string bytes(reinterpret_cast<char *>(packed.data()), 144);
  auto program = loadBundle(testManifest(), moduleImage(), bytes);
  ASSERT_TRUE(program.ok()) << program.status().message;
  auto session = Session::create(*program);
  ASSERT_TRUE(session.ok());
  std::vector<float> x = integerRows(6);
  std::vector<ResultTensor> results;
  EXPECT_OK((*session)->invoke("main", {view(x, {6, 4})}, results));
  EXPECT_EQ(values(results[0]), weights.expect(x));

  EXPECT_ERROR(
      loadBundle(testManifest(), moduleImage(), bytes.substr(0, 143)).status(),
      MOIRA_DATA_LOSS,
      "parameter 'bias': expected 16 packed bytes at 128, got a section of "
      "143 bytes");
  EXPECT_ERROR(loadBundle(testManifest(), moduleImage(), bytes + "x").status(),
               MOIRA_DATA_LOSS,
               "expected 144 bytes of packed parameters, got 145");
}

//===----------------------------------------------------------------------===//
// What does not run here
//===----------------------------------------------------------------------===//

TEST(HostCode, OtherMachinesAreNamed) {
  Manifest manifest = testManifest();
  manifest.target.triple = "riscv64-unknown-linux-gnu";
  Status status = loadBundle(manifest, moduleImage()).status();
  EXPECT_EQ(status.code, MOIRA_UNAVAILABLE);
  EXPECT_NE(status.message.find("got code for riscv64"), std::string::npos);

  std::string image = moduleImage();
  Elf64_Half machine = EM_RISCV;
  image.replace(offsetof(Elf64_Ehdr, e_machine), sizeof(machine),
                reinterpret_cast<char *>(&machine), sizeof(machine));
  status = loadBundle(testManifest(), image).status();
  EXPECT_EQ(status.code, MOIRA_UNAVAILABLE);
  EXPECT_NE(status.message.find("host code: expected elf machine"),
            std::string::npos);
}

TEST(HostCode, FeaturesAreChecked) {
  Target target;
  EXPECT_OK(checkTarget(target));
  target.features = "+no-such-thing,-avx512f,,+";
  EXPECT_OK(checkTarget(target));
#if defined(__x86_64__)
  target.triple = "x86_64-unknown-linux-gnu";
  target.features = "+sse4.2,+avx512f";
  if (__builtin_cpu_supports("avx512f"))
    EXPECT_OK(checkTarget(target));
  else
    EXPECT_ERROR(checkTarget(target), MOIRA_UNAVAILABLE,
                 "expected a cpu with avx512f, got one without");
#endif
}

TEST(HostCode, OtherBytesAreNamed) {
  EXPECT_ERROR(loadBundle(testManifest(), "").status(), MOIRA_DATA_LOSS,
               "host code: expected an elf shared object, got other bytes");
  EXPECT_ERROR(loadBundle(testManifest(), std::string(1000, 'x')).status(),
               MOIRA_DATA_LOSS,
               "host code: expected an elf shared object, got other bytes");
  std::string image = moduleImage();
  image[EI_CLASS] = ELFCLASS32;
  EXPECT_EQ(loadBundle(testManifest(), image).status().code, MOIRA_DATA_LOSS);
  Status status =
      loadBundle(testManifest(), moduleImage().substr(0, 200)).status();
  EXPECT_EQ(status.code, MOIRA_DATA_LOSS);
  // The rest is the dynamic linker's, without the path of the memory file.
  std::string begin = "host code: expected a loadable object, got: ";
  EXPECT_EQ(status.message.substr(0, begin.size()), begin);
  EXPECT_EQ(status.message.find("/proc"), std::string::npos);
}

TEST(HostCode, SymbolsAreNamed) {
  Manifest manifest = testManifest();
  manifest.parameters[1].pack = "moira_pack_gone";
  EXPECT_ERROR(loadBundle(manifest, moduleImage()).status(), MOIRA_NOT_FOUND,
               "expected symbol 'moira_pack_gone' in the program's code, got "
               "none");
}

TEST(HostCode, BadManifestsAreNamed) {
  std::vector<unsigned char> bytes = encodeBundle({"{", moduleImage(), ""});
  auto file = BundleFile::read(bytes.data(), bytes.size());
  ASSERT_TRUE(file.ok());
  EXPECT_ERROR(Program::load(*file).status(), MOIRA_DATA_LOSS,
               "manifest: expected JSON, got other text");
}
