// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "probes/discovery.h"
#include "probes/poll_site.h"

namespace pollgap {
namespace {

TEST(ParsePollSite, Forms) {
  auto spec = parse_poll_site("libucp.so.0:ucp_worker_progress");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->file, "libucp.so.0");
  EXPECT_EQ(spec->symbol, "ucp_worker_progress");
  EXPECT_FALSE(spec->offset);

  spec = parse_poll_site("/opt/a+b/app+0x1A2b");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->file, "/opt/a+b/app");
  EXPECT_EQ(spec->offset, 0x1a2bu);

  spec = parse_poll_site("/opt/x:y/libstdc++.so:ns::poll");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->file, "/opt/x:y/libstdc++.so");
  EXPECT_EQ(spec->symbol, "ns::poll");
}

TEST(ParsePollSite, Refused) {
  for (const char* text : {"", "file", "file:", ":symbol", "file+12", "+0x10", "file+0x",
                           "file+0xzz", "file+0x11111111111111111"}) {
    const auto spec = parse_poll_site(text);
    ASSERT_FALSE(spec) << text;
    EXPECT_EQ(spec.error().code, ExitCode::usage);
    EXPECT_NE(spec.error().message.find("FILE:SYMBOL"), std::string::npos);
  }
}

TEST(FindPollSiteFile, ByPathOrName) {
  const MemoryMap map = MemoryMap::parse(
      "1000-2000 r-xp 00000000 fe:01 1 /usr/bin/app\n"
      "2000-3000 r--p 00000000 fe:01 2 /lib/data.so\n"
      "3000-4000 r-xp 00000000 fe:01 3 /lib/twice.so\n"
      "4000-5000 r-xp 00000000 fe:01 4 /opt/twice.so\n");
  EXPECT_EQ((*find_poll_site_file(*parse_poll_site("app:f"), map))->start, 0x1000u);
  EXPECT_EQ((*find_poll_site_file(*parse_poll_site("/usr/bin/app:f"), map))->start, 0x1000u);
  EXPECT_EQ((*find_poll_site_file(*parse_poll_site("/opt/twice.so:f"), map))->start, 0x4000u);
  for (const char* text : {"pp:f", "bin/app:f", "data.so:f", "twice.so:f", "none:f"}) {
    const auto found = find_poll_site_file(*parse_poll_site(text), map);
    ASSERT_FALSE(found) << text;
    EXPECT_EQ(found.error().code, ExitCode::no_poll_function);
  }
}

class ResolvePollSite : public testing::Test {
 protected:
  Result<uint64_t> resolve(const std::string& rest) {
    const auto spec = parse_poll_site("libibverbs.so.1" + rest);
    if (!spec) return spec.error();
    return resolve_poll_site(*spec, *image, nullptr, *instruction_set_for(EM_X86_64));
  }
  std::string offset(uint64_t value) {
    char text[32];
    snprintf(text, sizeof(text), "+0x%lx", static_cast<unsigned long>(value));
    return text;
  }
  Result<ElfImage> image =
      ElfImage::open(FileDescriptor(::open(POLLGAP_LIBIBVERBS, O_RDONLY)), "libibverbs.so.1");
};

TEST_F(ResolvePollSite, Symbol) {
  ASSERT_TRUE(image);
  const auto address = resolve(":ibv_create_cq");
  ASSERT_TRUE(address) << address.error().message;
  EXPECT_EQ(*address, image->function("ibv_create_cq")->address);
  const auto missing = resolve(":no_such_function");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ExitCode::no_poll_function);
  EXPECT_NE(missing.error().message.find("no_such_function"), std::string::npos);
}

TEST_F(ResolvePollSite, OffsetMustBeAnInstruction) {
  ASSERT_TRUE(image);
  const ElfSymbol& function = *image->function("ibv_create_cq");
  const InstructionSet& set = *instruction_set_for(EM_X86_64);
  const std::vector<uint8_t> code = image->read(function.address, function.size);
  // An independent walk over the function's instructions.
  std::vector<bool> starts(code.size());
  for (uint64_t at = 0; at < code.size();) {
    starts[at] = true;
    at += set.decode(std::span(code).subspan(at), function.address + at)->length;
  }
  for (uint64_t at = 0; at < code.size(); ++at) {
    const auto address = resolve(offset(*image->offset_of(function.address) + at));
    EXPECT_EQ(static_cast<bool>(address), starts[at]) << at;
    if (address) {
      EXPECT_EQ(*address, function.address + at);
    }
  }
}

TEST_F(ResolvePollSite, OffsetOutsideOfCode) {
  ASSERT_TRUE(image);
  for (const uint64_t at : {uint64_t{0}, uint64_t{16}, uint64_t{1} << 40, UINT64_MAX}) {
    const auto address = resolve(offset(at));
    ASSERT_FALSE(address);
    EXPECT_EQ(address.error().code, ExitCode::no_poll_function);
  }
}

// In a live process, this one, that has no verbs loaded.
extern "C" __attribute__((noinline, visibility("default"))) int pollgap_test_progress(int* value) {
  __asm__ volatile("" ::: "memory");
  return ++*value;
}

TEST(DiscoverPollSite, InThisProcess) {
  int value = 0;
  pollgap_test_progress(&value);
  DiscoveryOptions options;
  options.poll_sites = {std::filesystem::read_symlink("/proc/self/exe").filename().string() +
                        ":pollgap_test_progress"};
  const auto sites = discover(getpid(), options);
  ASSERT_TRUE(sites) << sites.error().message;
  ASSERT_EQ(sites->sites.size(), 1u);
  const Site& site = sites->sites[0];
  EXPECT_EQ(site.role, SiteRole::user);
  EXPECT_EQ(site.name, "pollgap_test_progress");
  EXPECT_EQ(site.function_address, reinterpret_cast<uint64_t>(&pollgap_test_progress));
  EXPECT_GE(site.entry_offset, site.function_offset);
  EXPECT_LT(site.entry_offset, site.function_offset + site.function_bytes);
  ASSERT_EQ(site.found_by.size(), 1u);
  EXPECT_EQ(site.found_by[0], "--poll-site " + options.poll_sites[0]);
  EXPECT_FALSE(sites->threads.empty());

  options.poll_sites = {"no_such_file.so:f"};
  EXPECT_EQ(discover(getpid(), options).error().code, ExitCode::no_poll_function);
  options.poll_sites = {"nonsense"};
  EXPECT_EQ(discover(getpid(), options).error().code, ExitCode::usage);
}

}  // namespace
}  // namespace pollgap
