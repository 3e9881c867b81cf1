// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/probe_price.h"

#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "agent/capture/uprobe_links.h"
#include "pollgap_bpf.skel.h"
#include "probes/monotonic_clock.h"

// Functions whose first instruction the kernel emulates, and does not (kernel/events/uprobes.c and
// each architecture's own).
#if defined(__x86_64__)
asm(R"(
  .pushsection .text
  pollgap_probed_emulated: push %rbp
                           pop %rbp
                           ret
  pollgap_probed_stepped:  sub $8, %rsp
                           add $8, %rsp
                           ret
  .popsection)");
#elif defined(__aarch64__)
asm(R"(
  .pushsection .text
  pollgap_probed_emulated: nop
                           ret
  pollgap_probed_stepped:  sub x9, x9, #8
                           ret
  .popsection)");
#else
#error "which instructions does the kernel emulate here?"
#endif
extern "C" void pollgap_probed_emulated();
extern "C" void pollgap_probed_stepped();

namespace pollgap {
namespace {

using Function = void (*)();

constexpr int kRounds = 5;
constexpr uint64_t kCalls = 200;

// Where the file of this program has that code.
uint64_t file_offset(Function function) {
  struct Search {
    uint64_t address;
    uint64_t offset;
  } search{reinterpret_cast<uint64_t>(function), 0};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          const uint64_t start = info->dlpi_addr + segment.p_vaddr;
          if (segment.p_type == PT_LOAD && wanted.address >= start &&
              wanted.address < start + segment.p_filesz)
            wanted.offset = segment.p_offset + (wanted.address - start);
        }
        return 1;  // the first is the program itself
      },
      &search);
  return search.offset;
}

uint64_t call_ns(Function function) {
  std::array<uint64_t, kRounds> rounds{};
  for (uint64_t& round : rounds) {
    const uint64_t start = monotonic_ns();
    for (uint64_t i = 0; i < kCalls; ++i) function();
    round = (monotonic_ns() - start) / kCalls;
  }
  return *std::ranges::min_element(rounds);
}

UprobePlace place_of(Function function) {
  return {"/proc/self/exe", file_offset(function), PG_COOKIE(PG_POLL_CQ, 0)};
}

}  // namespace

uint64_t ProbePrices::of(const Site& site) const {
  return site.entry_execution == ProbeExecution::emulated ? emulated_ns : single_stepped_ns;
}

ProbePrices measure_probe_prices(KernelPrograms& programs) {
  const auto& object = programs.object().progs;
  UprobeLinks links(getpid(), programs.multi_uprobes());
  ProbePrices prices;
  if (links.attach(object.on_poll_enter, false,
                   {place_of(pollgap_probed_emulated), place_of(pollgap_probed_stepped)}))
    return prices;
  prices.emulated_ns = call_ns(pollgap_probed_emulated);
  prices.single_stepped_ns = call_ns(pollgap_probed_stepped);
  if (links.attach(object.on_poll_return, true, {place_of(pollgap_probed_emulated)})) return prices;
  const uint64_t both_ns = call_ns(pollgap_probed_emulated);
  prices.at_return_ns = both_ns - std::min(both_ns, prices.emulated_ns);
  return prices;
}

}  // namespace pollgap
