// SPDX-License-Identifier: Apache-2.0
// Where to attach in a live process: the result of discovery. Passive data; knows nothing of gaps.
//
// Addresses are in the target's address space. Offsets are file offsets, as uprobes take them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "probes/result.h"

namespace pollgap {

struct CqLayout;

enum class SiteRole {
  poll_cq,       // ops.poll_cq(ibv_cq*, int, ibv_wc*) -> int completions
  start_poll,    // ibv_cq_ex.start_poll(ibv_cq_ex*, ibv_poll_cq_attr*) -> 0 or ENOENT
  next_poll,     // ibv_cq_ex.next_poll(ibv_cq_ex*) -> 0 or ENOENT
  end_poll,      // ibv_cq_ex.end_poll(ibv_cq_ex*)
  post_send,     // ops.post_send(ibv_qp*, ibv_send_wr*, ibv_send_wr**) -> 0 or errno
  verb,          // exported control-path function of libibverbs or librdmacm
  user,          // --poll-site: each call is a poll; nothing is known of its arguments
  get_cq_event,  // ibv_get_cq_event(ibv_comp_channel*, ibv_cq**, void**): waits for a completion
                 // event
  open_hook,     // libibverbs function after whose call a context or CQ may be new: discover again
};
const char* to_string(SiteRole role);

// How a probe at an instruction is executed by the kernel (facts: a factor of 30 in price).
enum class ProbeExecution { emulated, single_stepped };

struct Site {
  SiteRole role = SiteRole::poll_cq;
  std::string name;    // "mlx5_poll_cq_v1" where known, "ibv_reg_mr", else "libmlx5.so.1+0x1e880"
  std::string module;  // path as the target sees it: "/usr/lib/.../libmlx5-rdmav34.so"
  std::string open_path;  // path through which the agent opens that very file (/proc/PID/root/...,
                          // /proc/PID/map_files/...)
  uint64_t function_address = 0;  // in the target
  uint64_t function_offset = 0;   // file offset of the first instruction: where a return probe goes
  uint64_t function_bytes = 0;    // 0: not known
  uint64_t entry_offset = 0;      // file offset of the instruction chosen for the entry probe
  ProbeExecution entry_execution = ProbeExecution::single_stepped;
  ProbeExecution first_execution = ProbeExecution::single_stepped;  // of the first instruction
  bool arguments_intact = true;         // argument registers are still unchanged at entry_offset
  const CqLayout* cq_layout = nullptr;  // of a poll function: how its CQs can be read; null: not
  std::vector<std::string>
      found_by;  // "live ibv_context 0x55...", "static analysis of ...", "symbol", "--poll-site"
};

struct CqInfo {
  uint64_t address = 0;
  uint64_t context = 0;
  uint32_t handle = 0;
  int cqe = 0;            // ibv_cq.cqe
  bool extended = false;  // start_poll of ibv_cq_ex points into the provider
  uint64_t channel = 0;   // ibv_comp_channel, 0: none
};

struct QpInfo {
  uint64_t address = 0;
  uint64_t context = 0;
  uint64_t send_cq = 0;
  uint64_t recv_cq = 0;
  uint32_t qp_num = 0;
  int state = 0;  // enum ibv_qp_state
  int type = 0;   // enum ibv_qp_type
};

struct ContextInfo {
  uint64_t address = 0;
  std::string device;    // "mlx5_0"
  std::string provider;  // module path
  int cmd_fd = -1;
  uint64_t poll_cq = 0, post_send = 0, post_recv = 0;  // addresses
  std::vector<CqInfo> cqs;
  std::vector<QpInfo> qps;
};

struct ThreadInfo {
  pid_t tid = 0;
  std::string comm;
  std::string state;  // "R", "S", ...
  std::string cpus;   // allowed CPU list
  int last_cpu = -1;
  std::string policy;    // "SCHED_OTHER", ...
  int priority = 0;      // nice, or real-time priority
  double cpu_share = 0;  // of one CPU since the thread began, 0..1
};

struct Sites {
  pid_t pid = 0;
  std::string executable;
  std::vector<ContextInfo> contexts;
  std::vector<Site> sites;
  std::vector<ThreadInfo> threads;
  std::vector<std::string> notes;  // what was looked at and did not fit: for the user
};

}  // namespace pollgap
