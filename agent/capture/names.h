// SPDX-License-Identifier: Apache-2.0
// Puts names into the stream: before a record that needs one for the first time, an EV_NAME record.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agent/capture/cgroup_path.h"
#include "bpf/evidence.h"
#include "probes/kernel_symbols.h"
#include "probes/process.h"
#include "probes/symbolizer.h"

namespace pollgap {

class Names {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;

  // `process` and `cgroups` must outlive it.
  Names(const Process& process, const CgroupMounts& cgroups, KernelSymbols kernel, Symbolizer user);

  // Hands the record on, after the names it needs.
  void deliver(std::span<const std::byte> record, const Sink& sink);
  void name(ev_name_kind kind, uint64_t key, const std::string& text, const Sink& sink);

 private:
  bool known(ev_name_kind kind, uint64_t key);
  void name_kernel_function(uint64_t address, const Sink& sink);
  void name_cgroup(uint64_t id, const Sink& sink);
  void name_interrupt(int32_t irq, const Sink& sink);
  void name_system_call(int32_t number, const Sink& sink);
  void name_thread(uint32_t tid, const Sink& sink);
  // `call`: the address is where a call returns to, so its line is that of the byte before.
  void name_user_frame(uint64_t address, bool call, const Sink& sink);
  void deliver_stack(const ev_stack& stack, const Sink& sink);
  ev_stack interrupted_frames(const ev_stack& stack) const;
  uint32_t mode_of(const ev_stack& stack, const ev_stack& interrupted) const;
  void deliver_sample(ev_sample sample, const Sink& sink);

  const Process& process_;
  const CgroupMounts& cgroups_;
  KernelSymbols kernel_;
  Symbolizer user_;
  std::set<std::pair<uint32_t, uint64_t>> known_;
  // The kernel stack that a thread's silence sample found, until the sample itself comes.
  std::unordered_map<uint32_t, ev_stack> sample_stacks_;
};

// An EV_SESSION, EV_COVERAGE or other text record. Texts above 65,000 bytes are refused (empty).
std::vector<std::byte> text_record(ev_kind kind, uint64_t at_ns, const std::string& text);

}  // namespace pollgap
