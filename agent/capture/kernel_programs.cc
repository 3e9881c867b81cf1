// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/kernel_programs.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <sys/mman.h>
#include <sys/utsname.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string_view>

#include "pollgap_bpf.skel.h"
#include "probes/cq_layout.h"

namespace pollgap {
namespace {

// include/uapi/linux/bpf.h since 6.6; the build host's header may be older.
constexpr auto kTraceUprobeMulti = static_cast<bpf_attach_type>(48);

// libbpf's first complaint is the cause, those after it are consequences. Its print callback takes
// no argument of ours.
std::string first_libbpf_line;  // NOLINT

int remember_libbpf_line(libbpf_print_level level, const char* format, va_list arguments) {
  if (level != LIBBPF_WARN || !first_libbpf_line.empty()) return 0;
  char line[512];
  std::vsnprintf(line, sizeof(line), format, arguments);
  first_libbpf_line = line;
  while (!first_libbpf_line.empty() && first_libbpf_line.back() == '\n')
    first_libbpf_line.pop_back();
  return 0;
}

// Uprobe links filter by thread group, as we need, since 6.11; before, by the leading thread only
// (kernel/trace/bpf_trace.c: uprobe_prog_run).
bool kernel_has_multi_uprobes() {
  utsname name{};
  int major = 0;
  int minor = 0;
  if (uname(&name) != 0) return false;
  if (std::sscanf(name.release, "%d.%d", &major, &minor) != 2) return false;
  return major > 6 || (major == 6 && minor >= 11);
}

// Per-CPU variables of the kernel are within reach only where it lists them (CONFIG_KALLSYMS_ALL).
bool kernel_lists(std::string_view symbol) {
  std::ifstream file("/proc/kallsyms");
  std::string line;
  while (std::getline(file, line)) {
    const size_t name = line.rfind(' ');
    if (name != std::string::npos && std::string_view(line).substr(name + 1) == symbol) return true;
  }
  return false;
}

bool has_member(const btf& types, const char* structure, std::string_view member) {
  const int id = btf__find_by_name_kind(&types, structure, BTF_KIND_STRUCT);
  if (id < 0) return false;
  const btf_type* type = btf__type_by_id(&types, static_cast<uint32_t>(id));
  const btf_member* members = btf_members(type);
  for (int i = 0; i < btf_vlen(type); ++i)
    if (member == btf__name_by_offset(&types, members[i].name_off)) return true;
  return false;
}

StealReading steal_reading(const btf& types, const ProgramUse& use) {
  if (!use.hypervisor_reports_steal) return StealReading::none;
  if (!use.observes && kernel_lists("steal_time")) return StealReading::at_polls;
  const bool at_ticks =
      has_member(types, "rq", "prev_steal_time_rq") && has_member(types, "cfs_rq", "rq");
  return at_ticks ? StealReading::at_ticks : StealReading::none;
}

constexpr std::string_view kTracepointPrefix = "tp_btf/";

bool is_tracepoint(const bpf_program* program) {
  return std::string_view(bpf_program__section_name(program)).starts_with(kTracepointPrefix);
}

Error load_error(int error) {
  if (error == -EPERM) {  // EACCES is the verifier's
    return {ExitCode::no_privilege,
            "the kernel refused to load pollgap's BPF programs: run it as root, or give it "
            "CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE"};
  }
  return {ExitCode::kernel_lacks,
          "the kernel did not take pollgap's BPF programs (" + std::string(std::strerror(-error)) +
              (first_libbpf_line.empty() ? "" : "; " + first_libbpf_line) +
              "): it needs Linux 5.17 or later with BTF; 'pollgap doctor' says what is missing"};
}

template <typename T>
Result<MappedArray<T>> map_array(const bpf_map* map) {
  const size_t count = bpf_map__max_entries(map);
  void* memory =
      mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
  if (memory == MAP_FAILED) {
    return Error{ExitCode::kernel_lacks, std::string("cannot map the BPF array ") +
                                             bpf_map__name(map) + ": " + std::strerror(errno)};
  }
  return MappedArray<T>(memory, count);
}

}  // namespace

const char* to_string(StealReading reading) {
  switch (reading) {
    case StealReading::at_polls:
      return "at_polls";
    case StealReading::at_ticks:
      return "at_ticks";
    case StealReading::none:
      break;
  }
  return "none";
}

void ObjectCloser::operator()(pollgap_bpf* object) const { pollgap_bpf::destroy(object); }

Result<KernelPrograms> KernelPrograms::load(const pg_config& config, const ProgramUse& use) {
  first_libbpf_line.clear();
  libbpf_set_print(remember_libbpf_line);
  const std::unique_ptr<btf, void (*)(btf*)> types(btf__load_vmlinux_btf(), btf__free);
  if (!types) {
    return Error{ExitCode::kernel_lacks,
                 "the kernel has no type information (/sys/kernel/btf/vmlinux): pollgap needs "
                 "CONFIG_DEBUG_INFO_BTF"};
  }
  KernelPrograms programs;
  programs.object_.reset(pollgap_bpf::open());
  if (!programs.object_) return load_error(-errno);
  pollgap_bpf& object = *programs.object_;
  pg_config settings = config;
  programs.steal_ = steal_reading(*types, use);
  const bool at_polls = programs.steal_ == StealReading::at_polls;
  if (at_polls) settings.steal_valid = 1;
  settings.steal_at_ticks = programs.steal_ == StealReading::at_ticks ? 1 : 0;
  if (Result<SmiCounters> counters = SmiCounters::open()) {
    programs.smi_counters_ = std::move(*counters);
    settings.smi_counted = 1;
  } else {
    programs.smis_not_counted_ = counters.error().message;
  }
  std::memcpy(const_cast<char*>(reinterpret_cast<const volatile char*>(&object.rodata->config)),
              &settings, sizeof(settings));
  object.rodata->possible_cpus = static_cast<uint32_t>(libbpf_num_possible_cpus());
  programs.multi_uprobes_ = kernel_has_multi_uprobes();
  bpf_program__set_autoload(object.progs.on_poll_seen, use.observes);
  bpf_program__set_autoload(object.progs.on_tell_pending, use.observes);
  bpf_program__set_autoload(object.progs.on_poll_enter, use.times_polls);
  bpf_program__set_autoload(object.progs.on_poll_return, use.times_polls);
  bpf_program__set_autoload(object.progs.on_poll_enter_steal, at_polls);
  bpf_program__set_autoload(object.progs.on_poll_return_steal, at_polls);
  bpf_program__set_autoload(object.progs.on_post_enter, use.times_polls);
  bpf_program__set_autoload(object.progs.on_post_return, use.times_polls);
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object.obj) {
    const std::string_view section = bpf_program__section_name(program);
    if (is_tracepoint(program)) {
      const std::string tracepoint(section.substr(kTracepointPrefix.size()));
      const std::string type = "btf_trace_" + tracepoint;
      if (btf__find_by_name_kind(types.get(), type.c_str(), BTF_KIND_TYPEDEF) < 0) {
        programs.missing_.push_back(tracepoint);
        bpf_program__set_autoload(program, false);
      }
    } else if (programs.multi_uprobes_ && (section == "uprobe" || section == "uretprobe")) {
      bpf_program__set_expected_attach_type(program, kTraceUprobeMulti);
    }
  }
  if (const int error = pollgap_bpf::load(&object); error != 0) return load_error(error);
  if (!programs.smi_counters_.put(object.maps.smi_counters))
    programs.smis_not_counted_ = "the programs cannot read the event msr/smi";
  for (const pid_t tid : use.tids) {
    const auto key = static_cast<uint32_t>(tid);
    const uint8_t one = 1;
    bpf_map_update_elem(bpf_map__fd(object.maps.chosen), &key, &one, BPF_ANY);
  }
  auto clocks = map_array<pg_thread_clock>(object.maps.thread_clocks);
  if (!clocks) return clocks.error();
  programs.clocks_ = std::move(*clocks);
  auto cpus = map_array<pg_cpu>(object.maps.cpus);
  if (!cpus) return cpus.error();
  programs.cpus_ = std::move(*cpus);
  if (Status failed = programs.attach_tracepoints()) return *failed;
  return programs;
}

Status KernelPrograms::attach_tracepoints() {
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object_->obj) {
    if (!is_tracepoint(program) || !bpf_program__autoload(program)) continue;
    bpf_link* link = bpf_program__attach(program);
    if (link == nullptr) return load_error(-errno);
    links_.emplace_back(link, bpf_link__destroy);
  }
  return std::nullopt;
}

uint64_t KernelPrograms::lost_records() const {
  return const_cast<const volatile __u64&>(object_->bss->lost_records);
}

uint64_t KernelPrograms::trace_dropped() const {
  return const_cast<const volatile __u64&>(object_->bss->trace_dropped);
}

uint32_t KernelPrograms::threads_refused() const {
  return const_cast<const volatile __u32&>(object_->bss->threads_refused);
}

void KernelPrograms::set_cq_layout(uint32_t site, const CqLayout& layout) {
  const pg_cq_layout value{.known = 1,
                           .consumer_index = layout.consumer_index,
                           .active_buffer = layout.active_buffer,
                           .doorbell_record = layout.doorbell_record,
                           .entry_bytes = layout.entry_bytes,
                           .reserved = {}};
  bpf_map_update_elem(bpf_map__fd(object_->maps.cq_layouts), &site, &value, BPF_ANY);
}

uint64_t KernelPrograms::others_probed() const {
  return const_cast<const volatile __u64&>(object_->bss->others_probed);
}

uint32_t KernelPrograms::contexts_opened() const {
  return const_cast<const volatile __u32&>(object_->bss->contexts_opened);
}

void KernelPrograms::tell_served(size_t slot, uint64_t until_ns) const {
  auto& clock = const_cast<volatile pg_thread_clock&>(clocks_[slot]);
  clock.last_poll_ns = until_ns;
}

void KernelPrograms::tell_pending(uint32_t tid) {
  uint64_t argument = tid;
  LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &argument, .ctx_size_in = sizeof(argument));
  bpf_prog_test_run_opts(bpf_program__fd(object_->progs.on_tell_pending), &options);
}

void KernelPrograms::judge_polls_from(uint64_t ns) {
  const_cast<volatile __u64&>(object_->bss->judged_from_ns) = ns;
}

void KernelPrograms::set_observing(bool observing) {
  const_cast<volatile __u32&>(object_->bss->observing) = observing ? 1 : 0;
}

void KernelPrograms::hold_silences(uint64_t until_ns) const {
  for (size_t slot = 0; slot < clocks_.size() && clocks_[slot].tid != 0; ++slot)
    tell_served(slot, until_ns);
}

}  // namespace pollgap
