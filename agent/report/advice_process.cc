// SPDX-License-Identifier: Apache-2.0
// Advice where the polling thread itself was busy, and where the completion was late.
#include <fmt/format.h>

#include <algorithm>

#include "agent/report/advice_rules.h"

namespace pollgap::advice {
namespace {

// enum ibv_wc_status of <infiniband/verbs.h>.
constexpr uint32_t kLocalProtectionError = 4;
constexpr uint32_t kFlushError = 5;
constexpr uint32_t kRemoteAccessError = 10;
constexpr uint32_t kRetryExceeded = 12;
constexpr uint32_t kRnrRetryExceeded = 13;

constexpr const char* kCounterCommand =
    "grep . /sys/class/infiniband/*/ports/*/hw_counters/{local_ack_timeout_err,packet_seq_err,"
    "out_of_sequence,rnr_nak_retry_err,out_of_buffer,rp_cnp_handled}";

constexpr const char* kNumaBalancing =
    "NUMA balancing scanned the process's memory in the polling thread: sysctl -w "
    "kernel.numa_balancing=0, or bind the memory (numactl --membind=NODE).";

const Frame* first_named(const std::vector<Frame>& stack) {
  const auto found =
      std::ranges::find_if(stack, [](const Frame& frame) { return !frame.function.empty(); });
  return found == stack.end() ? nullptr : &*found;
}

std::string place_of(const Frame& frame) {
  if (frame.file.empty()) return frame.function;
  return fmt::format("{} ({}:{})", frame.function, frame.file, frame.line);
}

bool is_numa_balancing(const Detail& detail) {
  return detail.work_function.find("numa") != std::string::npos ||
         detail.kind.find("numa") != std::string::npos ||
         detail.note.find("numa") != std::string::npos;
}

void page_fault(const Detail& detail, Sentences& out) {
  if (detail.fault == "major") {
    out.push_back(
        "The page had to be read from a file or from swap: lock memory with mlockall(MCL_CURRENT | "
        "MCL_FUTURE) before polling, and keep files that are mapped on the polling thread in "
        "memory "
        "(MAP_POPULATE, madvise(MADV_POPULATE_READ)).");
    return;
  }
  out.push_back(
      "Memory was touched for the first time, or again after it was given back: touch it before "
      "polling (MAP_POPULATE, mlockall(MCL_CURRENT | MCL_FUTURE), huge pages) and keep it "
      "(no madvise(MADV_DONTNEED); MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ large).");
}

bool gives_memory_back(const std::string& syscall) {
  for (const char* name : {"munmap", "madvise", "mmap", "mprotect", "brk", "mremap"})
    if (syscall == name) return true;
  return false;
}

}  // namespace

void self_kernel(const Detail& detail, const Context&, Sentences& out) {
  if (is_numa_balancing(detail)) return out.push_back(kNumaBalancing);
  if (detail.kind == "page_fault" || !detail.fault.empty()) return page_fault(detail, out);
  if (detail.kind == "reclaim")
    out.push_back(
        "The thread had to free memory itself: raise vm.min_free_kbytes and "
        "vm.watermark_scale_factor so that kswapd frees it earlier.");
  if (detail.kind == "compaction")
    out.push_back(
        "The thread compacted memory for a huge page: echo defer > "
        "/sys/kernel/mm/transparent_hugepage/defrag");
  if (detail.syscall.empty()) return;
  const Frame* caller = first_named(detail.user_stack);
  const std::string site =
      caller == nullptr ? "" : fmt::format(", called by {}", place_of(*caller));
  if (gives_memory_back(detail.syscall))
    out.push_back(
        fmt::format("{}(){} changes the address space on the polling thread: allocate once "
                    "and reuse.",
                    detail.syscall, site));
  else
    out.push_back(fmt::format("{}(){} runs on the polling thread: call it from another thread.",
                              detail.syscall, site));
}

void control_verb(const Detail& detail, const Context&, Sentences& out) {
  if (detail.verb.empty()) return;
  if (detail.verb.find("reg_mr") != std::string::npos ||
      detail.verb.find("reg_dmabuf") != std::string::npos) {
    out.push_back(fmt::format(
        "Take {}() out of the poll loop: register buffers once at start and keep them in a "
        "registration cache; huge pages make it cheaper; with on-demand paging "
        "(IBV_ACCESS_ON_DEMAND, if ibv_devinfo -v lists odp_caps) nothing is pinned.",
        detail.verb));
    return;
  }
  out.push_back(fmt::format("Call {}() from another thread than the one that polls.", detail.verb));
}

void application(const Detail& detail, const Context&, Sentences& out) {
  if (const Frame* frame = first_named(detail.user_stack)) {
    out.push_back(
        fmt::format("Bound the work that {} does between two polls, or hand it to another thread.",
                    place_of(*frame)));
    return;
  }
  if (detail.user_stack.empty() || detail.user_stack.front().module.empty()) return;
  out.push_back(
      fmt::format("To see which function it was, install debug symbols of {} or build it "
                  "with -g -fno-omit-frame-pointer.",
                  detail.user_stack.front().module));
}

void poll_function(const Detail& detail, const Context&, Sentences& out) {
  if (detail.error_completions > 0)
    out.push_back(
        "The poll worked through error completions: look for the first that is no flush, it is the "
        "cause; the flushes are its consequence.");
  const Frame* frame = first_named(detail.user_stack);
  if (frame != nullptr && frame->function.find("spin_lock") != std::string::npos)
    out.push_back(
        "It spun on the CQ's lock while another thread held it: give each polling thread a CQ of "
        "its "
        "own; where one thread alone uses the context, MLX5_SINGLE_THREADED=1 takes the lock out.");
}

void late_completion(const Detail& detail, const Context&, Sentences& out) {
  const auto reason_has = [&](const char* word) {
    return detail.reason.find(word) != std::string::npos;
  };
  if (reason_has("rnr") || reason_has("RNR")) {
    out.push_back(
        "The peer had no receive posted: post more receives there, and set its min_rnr_timer "
        "(ibv_modify_qp, IBV_QP_MIN_RNR_TIMER) low; 0 means 655 ms a try.");
  } else if (reason_has("retrans") || reason_has("timeout")) {
    out.push_back(
        fmt::format("Packets were lost and sent again: find where: {}; then check pause and "
                    "ECN settings of the path (ethtool -S NETDEV | grep -E "
                    "'pause|discard').",
                    kCounterCommand));
  } else if (reason_has("pause") || reason_has("congestion")) {
    out.push_back(
        "The network held the adapter back: check receivers and switch queues (ethtool -S "
        "NETDEV | grep -E 'pause|cnp|ecn').");
  } else if (detail.reason == "cqe_write") {
    out.push_back(
        "The adapter had made the completion in time, and its write to memory came late: look at "
        "the adapter's PCIe link (width and speed: lspci -vv, LnkSta; ethtool -S NETDEV | grep -E "
        "'pci_stalled|pci_signal_integrity'), at what shares its root port, and at power "
        "saving of the link and the package (ASPM, C-states).");
  } else {
    out.push_back(
        fmt::format("The completion came late from the adapter. See which counter moves "
                    "while it happens: {}; and ethtool -S NETDEV | grep -E "
                    "'pause|discard|pci_stalled'.",
                    kCounterCommand));
  }
}

void unexplained(const Detail& detail, const Context&, Sentences& out) {
  if (is_numa_balancing(detail)) out.push_back(kNumaBalancing);
}

void error_completions(const ErrorCompletions& errors, Sentences& out) {
  if (errors.errors == 0) return;
  if (errors.errors == errors.flushes || errors.first_status == kFlushError) {
    out.push_back(
        "All error completions were flushes, a consequence: look for the first completion that is "
        "no "
        "flush, before this gap, or for who moved the QP to the error state.");
    return;
  }
  const std::string first =
      fmt::format("The first error that is no flush: {} on QP {}, vendor error {:#x}",
                  errors.first_status_name.empty() ? fmt::format("status {}", errors.first_status)
                                                   : errors.first_status_name,
                  errors.first_qp_num, errors.first_vendor_err);
  switch (errors.first_status) {
    case kRetryExceeded:
      out.push_back(first + ": the peer did not answer; is it alive, and is the path lossless? " +
                    kCounterCommand);
      break;
    case kRnrRetryExceeded:
      out.push_back(first +
                    ": the peer posted no receive in time; post more there, or raise "
                    "rnr_retry (7 is without end).");
      break;
    case kLocalProtectionError:
    case kRemoteAccessError:
      out.push_back(first +
                    ": check keys, addresses, lengths and access flags of the memory region.");
      break;
    default:
      out.push_back(first + ".");
  }
}

}  // namespace pollgap::advice
