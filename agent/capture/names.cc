// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/names.h"

#include <seccomp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "agent/capture/interrupt_facts.h"

namespace pollgap {
namespace {

constexpr size_t kMaximumTextBytes = 65'000;  // ev_header.bytes has 16 bits

template <typename Record>
std::vector<std::byte> with_text(Record record, const std::string& text) {
  const size_t padded = (text.size() + 7) / 8 * 8;
  record.header.bytes = static_cast<uint16_t>(sizeof(Record) + padded);
  record.text_bytes = static_cast<uint32_t>(text.size());
  std::vector<std::byte> bytes(sizeof(Record) + padded);
  std::memcpy(bytes.data(), &record, sizeof(record));
  std::memcpy(bytes.data() + sizeof(record), text.data(), text.size());
  return bytes;
}

template <typename Record>
const Record& as(std::span<const std::byte> bytes) {
  return *reinterpret_cast<const Record*>(bytes.data());
}

// arch/x86/include/asm/idtentry.h
bool is_interrupt_entry(std::string_view function) {
  return function.starts_with("asm_sysvec_") || function.starts_with("asm_common_interrupt");
}

// kernel/events/uprobes.c, arch/x86/kernel/uprobes.c: uprobe_notify_resume, __x64_sys_uretprobe;
// and the breakpoint's own way in.
bool is_of_uprobe(std::string_view function) {
  return function.find("uprobe") != std::string_view::npos ||
         function.find("uretprobe") != std::string_view::npos || function == "asm_exc_int3";
}

// The interrupt that a task handles by its name, "irq/45-mlx5_comp" (kernel/irq/manage.c); else -1.
int32_t threaded_interrupt(const ev_task& task) {
  int32_t irq = -1;
  if ((task.flags & EV_TASK_KTHREAD) == 0) return -1;
  const std::string comm(task.comm, strnlen(task.comm, sizeof(task.comm)));
  return std::sscanf(comm.c_str(), "irq/%d-", &irq) == 1 ? irq : -1;
}

}  // namespace

std::vector<std::byte> text_record(ev_kind kind, uint64_t at_ns, const std::string& text) {
  if (text.size() > kMaximumTextBytes) return {};
  ev_text record{};
  record.header.kind = static_cast<uint16_t>(kind);
  record.header.start_ns = record.header.end_ns = at_ns;
  return with_text(record, text);
}

Names::Names(const Process& process, const CgroupMounts& cgroups, KernelSymbols kernel,
             Symbolizer user)
    : process_(process), cgroups_(cgroups), kernel_(std::move(kernel)), user_(std::move(user)) {}

bool Names::known(ev_name_kind kind, uint64_t key) {
  return !known_.emplace(static_cast<uint32_t>(kind), key).second;
}

void Names::name(ev_name_kind kind, uint64_t key, const std::string& text, const Sink& sink) {
  if (text.empty() || text.size() > kMaximumTextBytes) return;
  ev_name record{};
  record.header.kind = EV_NAME;
  record.name_kind = static_cast<uint32_t>(kind);
  record.key = key;
  sink(with_text(record, text));
}

void Names::name_kernel_function(uint64_t address, const Sink& sink) {
  if (address == 0 || known(EV_NAME_KERNEL_FUNCTION, address)) return;
  name(EV_NAME_KERNEL_FUNCTION, address, std::string(kernel_.name(address)), sink);
}

void Names::name_cgroup(uint64_t id, const Sink& sink) {
  if (id == 0 || known(EV_NAME_CGROUP, id)) return;
  name(EV_NAME_CGROUP, id, cgroups_.path(id), sink);
}

void Names::name_interrupt(int32_t irq, const Sink& sink) {
  if (irq < 0 || known(EV_NAME_IRQ, static_cast<uint64_t>(irq))) return;
  name(EV_NAME_IRQ, static_cast<uint64_t>(irq), interrupt_facts(irq), sink);
}

void Names::name_system_call(int32_t number, const Sink& sink) {
  if (number < 0 || known(EV_NAME_SYSCALL, static_cast<uint64_t>(number))) return;
  char* text = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, number);
  if (text == nullptr) return;
  name(EV_NAME_SYSCALL, static_cast<uint64_t>(number), text, sink);
  std::free(text);
}

void Names::name_thread(uint32_t tid, const Sink& sink) {
  if (known(EV_NAME_THREAD, tid)) return;
  std::ifstream file("/proc/" + std::to_string(process_.pid()) + "/task/" + std::to_string(tid) +
                     "/comm");
  std::string comm;
  std::getline(file, comm);
  name(EV_NAME_THREAD, tid, comm, sink);
}

void Names::name_user_frame(uint64_t address, bool call, const Sink& sink) {
  if (address == 0 || known(EV_NAME_USER_FRAME, address)) return;
  const CodeLocation& frame = user_.locate(call ? address - 1 : address);
  nlohmann::ordered_json text;
  if (!frame.function.empty()) text["function"] = frame.function;
  if (!frame.file.empty()) text["file"] = frame.file;
  if (frame.line != 0) text["line"] = frame.line;
  if (!frame.module.empty()) {
    text["module"] = frame.module;
    text["offset"] = frame.module_offset + (call ? 1 : 0);
  }
  if (text.is_null()) return;
  name(EV_NAME_USER_FRAME, address,
       text.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace), sink);
}

void Names::deliver_stack(const ev_stack& stack, const Sink& sink) {
  const size_t frames = stack.frames < EV_STACK_FRAMES ? stack.frames : EV_STACK_FRAMES;
  for (size_t i = 0; i < frames; ++i) {
    if (stack.role == EV_STACK_KERNEL) {
      name_kernel_function(stack.ip[i], sink);
    } else {
      name_user_frame(stack.ip[i], i > 0, sink);
    }
  }
  sink(std::as_bytes(std::span(&stack, 1)));
}

// Without the frames of the interrupt that took the sample.
ev_stack Names::interrupted_frames(const ev_stack& stack) const {
  const auto* const end = stack.ip + stack.frames;
  const auto* const entry = std::find_if(
      stack.ip, end, [this](uint64_t ip) { return is_interrupt_entry(kernel_.name(ip)); });
  if (entry == end) return stack;
  ev_stack interrupted = stack;
  interrupted.frames = static_cast<uint16_t>(end - entry - 1);
  std::memset(interrupted.ip, 0, sizeof(interrupted.ip));
  std::copy(entry + 1, end, interrupted.ip);
  return interrupted;
}

uint32_t Names::mode_of(const ev_stack& stack, const ev_stack& interrupted) const {
  if (is_interrupt_entry(kernel_.name(stack.ip[stack.frames - 1]))) return EV_SAMPLE_USER;
  const bool in_uprobe =
      std::any_of(interrupted.ip, interrupted.ip + interrupted.frames,
                  [this](uint64_t ip) { return is_of_uprobe(kernel_.name(ip)); });
  return in_uprobe ? EV_SAMPLE_UPROBE : EV_SAMPLE_KERNEL;
}

void Names::deliver_sample(ev_sample sample, const Sink& sink) {
  name_user_frame(sample.user_ip, false, sink);
  const auto found = sample_stacks_.find(sample.tid);
  if (found != sample_stacks_.end()) {
    const ev_stack stack = found->second;
    sample_stacks_.erase(found);
    if (sample.mode == EV_SAMPLE_UNTOLD && stack.header.start_ns == sample.header.start_ns &&
        stack.frames > 0 && stack.frames < EV_STACK_FRAMES) {
      const ev_stack interrupted = interrupted_frames(stack);
      sample.mode = mode_of(stack, interrupted);
      if (sample.mode == EV_SAMPLE_KERNEL) deliver_stack(interrupted, sink);
    }
  }
  sink(std::as_bytes(std::span(&sample, 1)));
}

void Names::deliver(std::span<const std::byte> record, const Sink& sink) {
  switch (as<ev_header>(record).kind) {
    case EV_RUN: {
      const auto& run = as<ev_run>(record);
      name_kernel_function(run.work_function, sink);
      name_cgroup(run.task.cgroup_id, sink);
      name_interrupt(threaded_interrupt(run.task), sink);
      break;
    }
    case EV_OFF_CPU: {
      const auto& off = as<ev_off_cpu>(record);
      name_system_call(off.syscall_nr, sink);
      name_cgroup(off.throttle_cgroup_id, sink);
      break;
    }
    case EV_IRQ: {
      const auto& irq = as<ev_irq>(record);
      name_kernel_function(irq.callback, sink);
      name_interrupt(irq.irq, sink);
      break;
    }
    case EV_WORK:
      name_kernel_function(as<ev_work>(record).function, sink);
      break;
    case EV_SELF: {
      const auto& self = as<ev_self>(record);
      name_system_call(self.syscall_nr, sink);
      name_user_frame(self.user_ip, false, sink);
      break;
    }
    case EV_GAP:
      name_thread(as<ev_gap>(record).tid, sink);
      break;
    case EV_POLLS:
      name_thread(as<ev_polls>(record).tid, sink);
      break;
    case EV_SAMPLE:
      deliver_sample(as<ev_sample>(record), sink);
      return;
    case EV_STACK: {
      const auto& stack = as<ev_stack>(record);
      // A silence sample's kernel stack has no duration; it is judged when the sample comes.
      if (stack.role == EV_STACK_KERNEL && stack.header.start_ns == stack.header.end_ns) {
        sample_stacks_[stack.tid] = stack;
      } else {
        deliver_stack(stack, sink);
      }
      return;
    }
    default:
      break;
  }
  sink(record);
}

}  // namespace pollgap
