// SPDX-License-Identifier: Apache-2.0
// Static analysis of the providers that the distribution installs.
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "probes/static_ops.h"

namespace pollgap {
namespace {

namespace fs = std::filesystem;

ElfImage open_image(const std::string& path) {
  auto image = ElfImage::open(FileDescriptor(::open(path.c_str(), O_RDONLY)), path);
  if (!image) throw std::runtime_error(image.error().message);
  return std::move(*image);
}

std::vector<std::string> installed_providers() {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(POLLGAP_PROVIDER_DIRECTORY)) {
    paths.push_back(fs::canonical(entry.path()).string());
  }
  return paths;
}

const InstructionSet& x86() { return *instruction_set_for(EM_X86_64); }

TEST(StaticOps, KnownAddressesOfDebian12) {
  const std::map<std::string, std::set<uint64_t>> known = {
      {"libmlx5.so.1.24.44.0", {0x1da50, 0x1e880}},
      {"libmlx4.so.1.0.44.0", {0x3300}},
      {"librxe-rdmav34.so", {0x2ca0}},
      {"libsiw-rdmav34.so", {0x2e40}},
      {"libirdma-rdmav34.so", {0x5c80}},
      {"libbnxt_re-rdmav34.so", {0x3160}},
      {"libefa.so.1.2.44.0", {0x60c0}},
  };
  const ElfImage mlx5 = open_image(fs::canonical(POLLGAP_LIBMLX5).string());
  if (mlx5.build_id() != POLLGAP_LIBMLX5_44_BUILD_ID) {
    GTEST_SKIP() << "another build of rdma-core is installed; EveryProvider covers it";
  }
  size_t checked = 0;
  for (const std::string& path : installed_providers()) {
    const auto expected = known.find(fs::path(path).filename().string());
    if (expected == known.end()) continue;
    const auto found = find_static_ops(open_image(path), x86(), verbs_version_of(path));
    ASSERT_TRUE(found) << found.error().message;
    std::set<uint64_t> poll_cq;
    for (const StaticOps& ops : *found) poll_cq.insert(ops.poll_cq);
    EXPECT_EQ(poll_cq, expected->second) << path;
    ++checked;
  }
  EXPECT_EQ(checked, known.size());
}

// Whatever is installed: what is found are beginnings of functions, with a post function beside.
TEST(StaticOps, EveryProvider) {
  size_t found_in = 0;
  for (const std::string& path : installed_providers()) {
    const ElfImage image = open_image(path);
    const auto found = find_static_ops(image, x86(), verbs_version_of(path));
    if (!found) {
      EXPECT_NE(found.error().message.find(path), std::string::npos);
      continue;
    }
    ++found_in;
    for (const StaticOps& ops : *found) {
      const auto extent = image.extent_of(ops.poll_cq);
      ASSERT_TRUE(extent) << path;
      EXPECT_EQ(extent->start, ops.poll_cq) << path;
    }
  }
  EXPECT_GE(found_in, installed_providers().size() - 1);  // hns builds its table at run time
}

// Without any evidence of the version the table's content has to tell.
TEST(StaticOps, VersionFromTheFileAlone) {
  const ElfImage image = open_image(fs::canonical(POLLGAP_LIBMLX5).string());
  const auto with = find_static_ops(image, x86(), verbs_version_of(image.name()));
  const auto without = find_static_ops(image, x86(), {});
  ASSERT_TRUE(with);
  ASSERT_TRUE(without);
  ASSERT_EQ(with->size(), without->size());
  for (size_t i = 0; i < with->size(); ++i) EXPECT_EQ((*with)[i].poll_cq, (*without)[i].poll_cq);
}

TEST(StaticOps, FileWithoutTablesIsAnError) {
  const ElfImage image = open_image("/proc/self/exe");
  const auto found = find_static_ops(image, x86(), {});
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("verbs_set_ops"), std::string::npos);
}

TEST(VerbsVersion, FromFileNames) {
  EXPECT_EQ(verbs_version_of("/usr/lib/libibverbs.so.1.14.44.0").release, 44);
  EXPECT_EQ(verbs_version_of("/usr/lib/libmlx5.so.1.24.44.0").release, 44);
  EXPECT_EQ(verbs_version_of("/a/librxe-rdmav34.so").private_abi, 34);
  EXPECT_EQ(verbs_version_of("/a/librxe-rdmav34.so").release, 0);
  EXPECT_EQ(verbs_version_of("libibverbs.so.1").release, 0);
  EXPECT_EQ(verbs_version_of("").private_abi, 0);
  EXPECT_EQ(verbs_version_of("x.so....").release, 0);
}

}  // namespace
}  // namespace pollgap
