// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "probes/debug_file.h"
#include "probes/elf_image.h"
#include "probes/instruction_set.h"
#include "probes/static_ops.h"

namespace pollgap {
namespace {

std::vector<uint8_t> content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

FileDescriptor memory_file(std::span<const uint8_t> content) {
  FileDescriptor fd(memfd_create("elf", MFD_CLOEXEC));
  EXPECT_EQ(write(fd.get(), content.data(), content.size()), static_cast<ssize_t>(content.size()));
  return fd;
}

Result<ElfImage> open_path(const std::string& path) {
  return ElfImage::open(FileDescriptor(::open(path.c_str(), O_RDONLY)), path);
}

// Everything that discovery asks of a file.
size_t use_all(FileDescriptor fd) {
  const auto image = ElfImage::open(std::move(fd), "file");
  if (!image) return 0;
  size_t sum = image->build_id().size() + image->sections().size() + image->functions().size() +
               image->relocations().size() + image->packed_relocations().size();
  for (const uint64_t address : {uint64_t{0}, uint64_t{0x2ca0}, UINT64_MAX}) {
    sum += image->offset_of(address).has_value() + image->address_of(address).has_value() +
           image->extent_of(address).has_value() + image->read(address, 64).size() +
           (image->function_at(address) != nullptr);
  }
  sum += image->function("verbs_set_ops") != nullptr;
  const auto found = find_static_ops(*image, *instruction_set_for(EM_X86_64), {});
  return sum + (found ? found->size() : 0);
}

TEST(ElfImage, ReadsAStrippedProvider) {
  const std::string path = std::filesystem::canonical(POLLGAP_SMALL_PROVIDER).string();
  const auto image = open_path(path);
  ASSERT_TRUE(image) << image.error().message;
  EXPECT_EQ(image->machine(), EM_X86_64);
  EXPECT_EQ(image->build_id().size(), 40u);
  EXPECT_TRUE(image->debug_link());
  EXPECT_FALSE(image->relocations().empty());
  for (const ElfSection& section : image->sections()) {
    if (section.name != ".text") continue;
    EXPECT_EQ(image->offset_of(section.address), section.offset);
    EXPECT_EQ(image->address_of(section.offset), section.address);
    EXPECT_TRUE(image->is_code(section.address));
    return;
  }
  FAIL() << "no .text";
}

TEST(ElfImage, DefaultVersionComesFirst) {
  const std::string path = std::filesystem::canonical(POLLGAP_LIBIBVERBS).string();
  const auto image = open_path(path);
  ASSERT_TRUE(image);
  const ElfSymbol* symbol = image->function("ibv_create_cq");
  ASSERT_NE(symbol, nullptr);
  EXPECT_EQ(symbol->version, "IBVERBS_1.1");  // ibv_create_cq@IBVERBS_1.0 exists, too
  EXPECT_TRUE(symbol->default_version);
  const auto extent = image->extent_of(symbol->address + 1);
  ASSERT_TRUE(extent);
  EXPECT_EQ(extent->start, symbol->address);
  EXPECT_EQ(extent->end, symbol->address + symbol->size);
}

TEST(ElfImage, RefusesWhatIsNoElfFile) {
  EXPECT_FALSE(open_path("/proc/self/cmdline"));
  EXPECT_FALSE(open_path("/"));
  EXPECT_FALSE(open_path("/nonexistent"));
  const std::vector<uint8_t> text(100, 'x');
  const auto image = ElfImage::open(memory_file(text), "text");
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().message, "text: not a 64-bit little-endian ELF file");
}

TEST(ElfImage, RefusesA32BitFile) {
  std::vector<uint8_t> content = content_of(POLLGAP_SMALL_PROVIDER);
  content[EI_CLASS] = ELFCLASS32;
  EXPECT_FALSE(ElfImage::open(memory_file(content), "x"));
}

TEST(ElfImage, SurvivesEveryTruncation) {
  const std::vector<uint8_t> content = content_of(POLLGAP_SMALL_PROVIDER);
  ASSERT_GT(content.size(), 10000u);
  const FileDescriptor fd = memory_file(content);
  // From the whole file downwards: each step only takes bytes away. Every length at both ends of
  // the file, where the headers are, and a sample between.
  for (size_t size = content.size(); size-- > 0;) {
    if (size > 512 && size + 512 < content.size() && size % 61 != 0) continue;
    ASSERT_EQ(ftruncate(fd.get(), static_cast<off_t>(size)), 0);
    use_all(FileDescriptor(dup(fd.get())));
  }
}

TEST(ElfImage, SurvivesRandomDamage) {
  const std::vector<uint8_t> original = content_of(POLLGAP_SMALL_PROVIDER);
  std::mt19937 random(20240607);
  size_t survived = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<uint8_t> content = original;
    // Mostly where structure is: the headers at the front and at the end, and the dynamic tables.
    const size_t regions[] = {64, 1024, 8192, content.size()};
    for (int i = 0; i < 8; ++i) {
      const size_t region = regions[random() % 4];
      const size_t at = random() % region;
      const size_t place = random() % 2 == 0 ? at : content.size() - 1 - at;
      content[place] = static_cast<uint8_t>(random());
    }
    survived += use_all(memory_file(content)) > 0;
  }
  EXPECT_GT(survived, 0u);
}

TEST(DebugFile, TakenOnlyWithTheSameBuildId) {
  const std::vector<uint8_t> content = content_of(POLLGAP_SMALL_PROVIDER);
  const auto image = open_path(POLLGAP_SMALL_PROVIDER);
  ASSERT_TRUE(image);
  const DebugFileQuery query = debug_file_query(*image, "/lib/x/provider.so");
  std::vector<std::string> asked;
  const DebugFile same = find_debug_file(query, [&](const std::string& path) {
    asked.push_back(path);
    return path.starts_with("/usr/lib/debug/lib/x/") ? memory_file(content) : FileDescriptor();
  });
  EXPECT_TRUE(same.fd);
  ASSERT_EQ(asked.size(), 4u);
  EXPECT_TRUE(asked[0].starts_with("/usr/lib/debug/.build-id/" + image->build_id().substr(0, 2)));

  const DebugFile other = find_debug_file(
      query, [](const std::string&) { return FileDescriptor(::open("/proc/self/exe", O_RDONLY)); });
  EXPECT_FALSE(other.fd);
}

}  // namespace
}  // namespace pollgap
