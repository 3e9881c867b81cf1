// SPDX-License-Identifier: Apache-2.0
// Names for addresses: of a live process, and of the kernel.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstring>
#include <sstream>

#include "probes/discovery.h"
#include "probes/kernel_symbols.h"
#include "probes/symbolizer.h"

namespace pollgap {
namespace {

__attribute__((noinline)) int located_function(int value) {
  __asm__ volatile("" : "+r"(value));
  return value + 1;
}
constexpr int line_of_located_function = __LINE__ - 4;

TEST(Symbolizer, OwnFunctionWithItsLine) {
  const auto process = Process::open(getpid());
  ASSERT_TRUE(process);
  auto symbolizer = Symbolizer::open(*process);
  ASSERT_TRUE(symbolizer) << symbolizer.error().message;
  const auto address = reinterpret_cast<uint64_t>(&located_function);
  const CodeLocation& location = symbolizer->locate(address);
  EXPECT_NE(location.function.find("located_function"), std::string::npos) << location.function;
  EXPECT_TRUE(location.file.ends_with("probes_symbols_test.cc")) << location.file;
  EXPECT_GE(location.line, static_cast<uint32_t>(line_of_located_function));
  EXPECT_LE(location.line, static_cast<uint32_t>(line_of_located_function + 4));
  EXPECT_EQ(location.module, process->executable());
  EXPECT_NE(location.module_offset, 0u);
  EXPECT_EQ(&symbolizer->locate(address), &location);  // kept
}

// By the debug file that .gnu_debuglink leads to, for stacks and for sites.
TEST(Symbolizer, StrippedLibraryWithADebugFile) {
  void* library = dlopen(POLLGAP_STRIPPED, RTLD_LAZY);
  ASSERT_NE(library, nullptr) << dlerror();
  using Getter = int (*(*)())(int);
  const auto getter = reinterpret_cast<Getter>(dlsym(library, "address_of_hidden_function"));
  ASSERT_NE(getter, nullptr);
  const auto address = reinterpret_cast<uint64_t>(getter());
  const auto process = Process::open(getpid());
  ASSERT_TRUE(process);
  auto symbolizer = Symbolizer::open(*process);
  ASSERT_TRUE(symbolizer);
  const CodeLocation& location = symbolizer->locate(address);
  EXPECT_EQ(location.function, "hidden_function");
  EXPECT_TRUE(location.file.ends_with("probes_prologues.cc")) << location.file;
  EXPECT_GT(location.line, 0u);
  EXPECT_EQ(location.module, POLLGAP_STRIPPED);

  DiscoveryOptions options;
  options.poll_sites = {"probes_stripped.so:hidden_function"};
  const auto sites = discover(getpid(), options);
  ASSERT_TRUE(sites) << sites.error().message;
  ASSERT_EQ(sites->sites.size(), 1u);
  EXPECT_EQ(sites->sites[0].name, "hidden_function");
  EXPECT_EQ(sites->sites[0].function_address, address);
  EXPECT_TRUE(sites->sites[0].found_by.back().ends_with("probes_stripped.so.debug"));
  dlclose(library);
}

TEST(Symbolizer, LibraryVdsoAndNowhere) {
  const auto process = Process::open(getpid());
  ASSERT_TRUE(process);
  auto symbolizer = Symbolizer::open(*process);
  ASSERT_TRUE(symbolizer);
  const CodeLocation& library = symbolizer->locate(reinterpret_cast<uint64_t>(&::getppid));
  EXPECT_NE(library.function.find("getppid"), std::string::npos) << library.function;
  EXPECT_NE(library.module.find("libc"), std::string::npos) << library.module;

  const CodeLocation& vdso = symbolizer->locate(getauxval(AT_SYSINFO_EHDR) + 0x100);
  EXPECT_EQ(vdso.module, "[vdso]");

  const CodeLocation& nowhere = symbolizer->locate(8);
  EXPECT_TRUE(nowhere.function.empty());
  EXPECT_TRUE(nowhere.module.empty());
  const int local = 0;
  EXPECT_TRUE(symbolizer->locate(reinterpret_cast<uint64_t>(&local)).function.empty());
  EXPECT_TRUE(symbolizer->locate(UINT64_MAX).module.empty());
}

TEST(KernelSymbols, Parse) {
  std::istringstream text(
      "ffffffff81000000 T _stext\n"
      "ffffffff81000100 t task_numa_work\n"
      "ffffffff81000100 T same_address\n"
      "ffffffff81000200 D some_data\n"
      "ffffffffc0000010 t mlx5_eq_comp_int\t[mlx5_core]\n"
      "0000000000001000 T per_cpu_thing\n"
      "nonsense\n"
      "\n"
      "ffffffff81000300\n");
  const KernelSymbols symbols = KernelSymbols::parse(text);
  EXPECT_EQ(symbols.size(), 4u);
  EXPECT_EQ(symbols.name(0xffffffff81000000), "_stext");
  EXPECT_EQ(symbols.name(0xffffffff810000ff), "_stext");
  EXPECT_EQ(symbols.name(0xffffffff81000100), "task_numa_work");
  EXPECT_EQ(symbols.name(0xffffffff81000180), "task_numa_work");
  EXPECT_EQ(symbols.name(0xffffffffc0000011), "mlx5_eq_comp_int");
  EXPECT_EQ(symbols.name(0xffffffffd0000000), "");  // far from any
  EXPECT_EQ(symbols.name(0x1000), "");
  EXPECT_EQ(symbols.name(0), "");
}

TEST(KernelSymbols, OfThisKernel) {
  const auto symbols = KernelSymbols::load();
  if (!symbols) {
    EXPECT_EQ(symbols.error().code, ExitCode::no_privilege);
    EXPECT_NE(symbols.error().message.find("CAP_SYSLOG"), std::string::npos);
    return;
  }
  EXPECT_GT(symbols->size(), 10000u);
}

}  // namespace
}  // namespace pollgap
