// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/session.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "agent/capture/catch_up.h"
#include "agent/capture/cgroup_path.h"
#include "agent/capture/fault_events.h"
#include "agent/capture/host_facts.h"
#include "agent/capture/kernel_programs.h"
#include "agent/capture/names.h"
#include "agent/capture/own_cost.h"
#include "agent/capture/placement.h"
#include "agent/capture/poll_timing.h"
#include "agent/capture/record_queue.h"
#include "agent/capture/silence_sampler.h"
#include "agent/capture/stuck_guard.h"
#include "agent/capture/trace_events.h"
#include "agent/version.h"
#include "pollgap_bpf.skel.h"
#include "probes/discovery.h"
#include "probes/monotonic_clock.h"
#include "probes/process.h"

namespace pollgap {
namespace {

using Json = nlohmann::ordered_json;

// Kernel entries closer to each other than this many times their own full cost are one run.
constexpr uint64_t kRunFactor = 3;
// Of the kernel's records, before the agent looks again where the target's threads run.
constexpr size_t kBytesAtOnce = 1 << 20;
// The rest that it takes meanwhile, where more records are waiting.
constexpr int kBehindMs = 1;
// How often the agent looks for tracepoints of modules that were loaded meanwhile.
constexpr uint64_t kTraceSearchNs = 1'000'000'000;
// How often, at most, it looks for new contexts and queues where each new QP makes it do so.
constexpr uint64_t kQueueSearchNs = 1'000'000'000;

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

Json site_json(const Site& site) {
  return {{"role", to_string(site.role)},
          {"name", site.name},
          {"module", site.module},
          {"offset", hex(site.function_offset)},
          {"probe_offset", hex(site.entry_offset)},
          {"function_address", site.function_address},
          {"function_bytes", site.function_bytes},
          {"emulated", site.entry_execution == ProbeExecution::emulated},
          {"found_by", site.found_by}};
}

Json target_json(const Process& process, const std::vector<ContextInfo>& contexts,
                 const std::vector<Site>& poll_sites) {
  Json target{{"pid", process.pid()}, {"executable", process.executable()}};
  target["contexts"] = Json::array();
  for (const ContextInfo& context : contexts)
    target["contexts"].push_back({{"device", context.device},
                                  {"provider", context.provider},
                                  {"cqs", context.cqs.size()},
                                  {"qps", context.qps.size()}});
  target["sites"] = Json::array();
  for (const Site& site : poll_sites) target["sites"].push_back(site_json(site));
  return target;
}

Json options_json(const AttachOptions& options) {
  Json json{{"threshold_ns", options.threshold_ns}, {"timing", options.timing}};
  if (options.timing == "auto") json["overhead_budget"] = options.overhead_budget;
  if (may_observe(options)) json["observe_hz"] = options.observe_hz;
  if (options.duration_ns != 0) json["duration_ns"] = options.duration_ns;
  if (!options.tids.empty()) json["tids"] = options.tids;
  if (!options.poll_sites.empty()) json["poll_sites"] = options.poll_sites;
  if (!options.trace_events.empty()) json["trace_events"] = options.trace_events;
  return json;
}

// Where the target's busy threads run now, before any poll has been seen; or have run and will, if
// it is stopped.
std::set<int> busy_cpus(const Sites& sites) {
  constexpr double kBusyShare = 0.5;
  std::set<int> cpus;
  for (const ThreadInfo& thread : sites.threads) {
    const bool stopped = thread.state == "T" || thread.state == "t";
    const bool busy = thread.state == "R" || (stopped && thread.cpu_share >= kBusyShare);
    if (busy && thread.last_cpu >= 0) cpus.insert(thread.last_cpu);
  }
  return cpus;
}

template <typename Record>
std::vector<std::byte> whole(const Record& record) {
  const auto bytes = std::as_bytes(std::span<const Record, 1>(&record, 1));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

struct CaptureSession::Impl {
  AttachOptions options;
  pg_config config{};
  std::unique_ptr<Process> process;  // at a fixed address: the symbolizer refers to it
  Sites found;
  CgroupMounts cgroups;
  KernelPrograms programs;
  std::unique_ptr<RecordQueue> records;
  std::optional<PollTiming> timing;
  FaultEvents faults;
  TraceEvents trace;
  Names names;
  std::optional<SilenceSampler> sampler;
  std::optional<StuckGuard> guard;
  CatchUp catch_up;
  std::vector<std::vector<std::byte>> ready;  // the agent's own records, delivered next
  std::vector<std::string> notes;
  uint64_t interrupt_cost_ns = 0;
  uint64_t lost_told = 0;
  uint64_t lost_since_ns = 0;
  uint64_t trace_searched_ns = 0;
  uint64_t queues_searched_ns = 0;
  uint32_t contexts_seen = 0;
  size_t verbs_named = 0;
  size_t threads_followed = 0;
  std::set<int> polled_cpus;
  bool shares_core = false;
  bool called_exec = false;
  bool session_told = false;

  Impl(const AttachOptions& wanted, const pg_config& settings, std::unique_ptr<Process> target,
       Sites sites, KernelPrograms loaded, KernelSymbols kernel, Symbolizer user)
      : options(wanted),
        config(settings),
        process(std::move(target)),
        found(std::move(sites)),
        programs(std::move(loaded)),
        faults(programs.object().progs.on_fault_minor, programs.object().progs.on_fault_major),
        trace(programs.object().progs.on_trace_event, options.trace_events),
        names(*process, cgroups, std::move(kernel), std::move(user)) {}

  void tell_session();
  void tell_agent_window(ev_agent_what what, uint64_t start_ns);
  void tell_verbs(const Sink& sink);
  void tell_losses();
  Status follow_threads();
  Status attach_new_contexts();
  void attach_new_trace_events();
  void deliver(std::span<const std::byte> record, const Sink& sink);
  bool flush(const Sink& sink, size_t bytes = SIZE_MAX);  // false: as RecordQueue::drain
  // On a polled core the target comes before the evidence.
  void drained(bool all) { catch_up.drained(all || shares_core, monotonic_ns()); }
  Json coverage() const;
};

void CaptureSession::Impl::tell_session() {
  Json host = host_facts(cgroups.cpu_version());
  host["interrupt_cost_ns"] = interrupt_cost_ns;
  host["steal_read"] = to_string(programs.steal());
  const Json session{
      {"tool", {{"name", "pollgap"}, {"version", version}, {"pid", getpid()}}},
      {"host", host},
      {"target", target_json(*process, found.contexts, timing->probes().poll_sites())},
      {"options", options_json(options)}};
  const std::string text = session.dump(-1, ' ', false, Json::error_handler_t::replace);
  ready.push_back(text_record(EV_SESSION, monotonic_ns(), text));
}

void CaptureSession::Impl::tell_agent_window(ev_agent_what what, uint64_t start_ns) {
  ev_agent record{};
  record.header = {EV_AGENT, sizeof(record), 0, start_ns, monotonic_ns()};
  record.what = what;
  ready.push_back(whole(record));
}

void CaptureSession::Impl::tell_verbs(const Sink& sink) {
  const std::vector<std::string>& verbs = timing->probes().verbs();
  for (; verbs_named < verbs.size(); ++verbs_named)
    names.name(EV_NAME_VERB, verbs_named, verbs[verbs_named], sink);
}

void CaptureSession::Impl::tell_losses() {
  const uint64_t lost = programs.lost_records();
  const uint64_t now = monotonic_ns();
  if (lost > lost_told) {
    ev_lost record{};
    record.header = {EV_LOST, sizeof(record), 0, lost_since_ns, now};
    record.records = lost - lost_told;
    ready.push_back(whole(record));
    lost_told = lost;
  }
  lost_since_ns = now;
}

// Threads that have polled for the first time since the last call: their faults are followed. The
// agent leaves the cores that polling threads run on, also when they move.
Status CaptureSession::Impl::follow_threads() {
  const auto& clocks = programs.clocks();
  const size_t before = threads_followed;
  std::set<int> cpus;
  for (size_t slot = 0; slot < clocks.size() && clocks[slot].tid != 0; ++slot) {
    if (clocks[slot].exited == 0) cpus.insert(static_cast<int>(clocks[slot].cpu));
    if (slot < threads_followed) continue;
    threads_followed = slot + 1;
    if (Status failed = faults.follow(static_cast<pid_t>(clocks[slot].tid)))
      notes.push_back(failed->message);
  }
  if (threads_followed > before || (cpus != polled_cpus && !cpus.empty())) {
    shares_core = !keep_off(cpus);
    polled_cpus = std::move(cpus);
    timing->pause(shares_core);
  }
  return std::nullopt;
}

// The target has opened another context or made another CQ: its poll function may be new.
Status CaptureSession::Impl::attach_new_contexts() {
  const uint32_t opened = programs.contexts_opened();
  if (opened == contexts_seen) return std::nullopt;
  if (may_observe(options) && monotonic_ns() < queues_searched_ns + kQueueSearchNs)
    return std::nullopt;
  queues_searched_ns = monotonic_ns();
  contexts_seen = opened;
  DiscoveryOptions discovery;
  discovery.poll_sites = options.poll_sites;
  Result<Sites> again = discover(*process, discovery);
  if (!again) return std::nullopt;  // the context may be gone already
  found = std::move(*again);
  const uint64_t start = monotonic_ns();
  const size_t before = timing->probes().count();
  const size_t sites_before = timing->probes().poll_sites().size();
  if (Status failed = timing->update(found)) return failed;
  if (timing->probes().count() == before && timing->probes().poll_sites().size() == sites_before)
    return std::nullopt;
  tell_session();
  tell_agent_window(EV_AGENT_LATE_SITE, start);
  return std::nullopt;
}

// Modules come and go: a driver may be loaded while the session lasts.
void CaptureSession::Impl::attach_new_trace_events() {
  const uint64_t start = monotonic_ns();
  if (start - trace_searched_ns < kTraceSearchNs) return;
  trace_searched_ns = start;
  if (!trace.any_new()) return;
  trace.attach_new();
  tell_agent_window(EV_AGENT_LATE_SITE, start);
}

void CaptureSession::Impl::deliver(std::span<const std::byte> record, const Sink& sink) {
  const auto& header = *reinterpret_cast<const ev_header*>(record.data());
  if (header.kind == EV_PROCESS &&
      reinterpret_cast<const ev_process*>(record.data())->what == EV_PROCESS_EXEC)
    called_exec = true;
  if (header.kind == EV_TRACE) {
    const auto decoded = trace.decode(*reinterpret_cast<const ev_trace*>(record.data()));
    if (!decoded.empty()) sink(decoded);
    return;
  }
  names.deliver(record, sink);
}

// About that many bytes of the kernel's records, or all there are.
bool CaptureSession::Impl::flush(const Sink& sink, size_t bytes) {
  tell_losses();
  for (const auto& record : ready)
    if (!record.empty()) sink(record);
  ready.clear();
  tell_verbs(sink);
  const auto named = [&](std::span<const std::byte> record) { deliver(record, sink); };
  timing->prepare();
  const bool all = records->drain(
      [&](std::span<const std::byte> record) {
        timing->accept(record);
        deliver(record, sink);
      },
      bytes);
  if (all) timing->tell(named);
  return all;
}

Json CaptureSession::Impl::coverage() const {
  Json json{{"lost_records", programs.lost_records()},
            {"missing_tracepoints", programs.missing()},
            {"steal_clock_read", programs.steal() != StealReading::none || config.steal_valid != 0},
            {"smis_counted", programs.smis_not_counted().empty()},
            {"silence_samples", sampler ? sampler->asked() : 0},
            {"polling_threads", threads_followed},
            {"threads_refused", programs.threads_refused()},
            {"shares_polled_core", shares_core}};
  if (const std::string& why = programs.smis_not_counted(); !why.empty())
    json["smis_not_counted"] = why;
  json["trace_events_dropped"] = programs.trace_dropped();
  std::vector<std::string> told = notes;
  timing->tell_coverage(json, told);
  trace.tell(json, told);
  if (catch_up.was_raised())
    told.push_back(
        "records came so fast that the agent took the lowest real-time priority to keep up, on "
        "cores that are not polled");
  if (threads_followed == 0)
    told.push_back(
        "no poll was seen: the target's threads did not call a poll function while attached");
  if (called_exec) told.push_back("the target called exec: the probes went with the old program");
  json["notes"] = told;
  return json;
}

CaptureSession::CaptureSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CaptureSession::~CaptureSession() = default;

Result<std::unique_ptr<CaptureSession>> CaptureSession::open(const AttachOptions& options) {
  Result<Process> opened = Process::open(options.pid);
  if (!opened) return opened.error();
  auto process = std::make_unique<Process>(std::move(*opened));
  DiscoveryOptions discovery;
  discovery.poll_sites = options.poll_sites;
  discovery.wait_for_context = true;
  Result<Sites> sites = discover(*process, discovery);
  if (!sites) return sites.error();
  Result<Symbolizer> user = Symbolizer::open(*process);
  if (!user) return user.error();
  Result<KernelSymbols> kernel = KernelSymbols::load();
  const bool shares_core = !keep_off(busy_cpus(*sites));
  const KernelEntryCost cost = measure_kernel_entry_cost();
  pg_config config{};
  config.target_pid = static_cast<uint32_t>(options.pid);
  config.agent_pid = static_cast<uint32_t>(getpid());
  config.tids_given = options.tids.empty() ? 0 : 1;
  const StealClock steal = steal_clock();
  config.steal_valid = steal == StealClock::none_needed ? 1 : 0;
  config.threshold_ns = options.threshold_ns;
  config.stack_ns = options.threshold_ns / 4;
  config.fault_run_ns = kRunFactor * cost.minor_fault_ns;
  config.syscall_run_ns = kRunFactor * cost.system_call_ns;
  const uint64_t start = monotonic_ns();
  Result<KernelPrograms> programs =
      KernelPrograms::load(config, {.times_polls = may_time_polls(options),
                                    .observes = may_observe(options),
                                    .hypervisor_reports_steal = steal == StealClock::counts,
                                    .tids = options.tids});
  if (!programs) return programs.error();
  auto impl = std::make_unique<Impl>(
      options, config, std::move(process), std::move(*sites), std::move(*programs),
      kernel ? std::move(*kernel) : KernelSymbols(), std::move(*user));
  auto records = RecordQueue::open(impl->programs);
  if (!records) return records.error();
  impl->records = std::move(*records);
  if (!kernel) impl->notes.push_back("kernel functions have no names: " + kernel.error().message);
  impl->shares_core = shares_core;
  impl->interrupt_cost_ns = measure_interrupt_cost_ns();
  impl->lost_since_ns = start;
  impl->timing.emplace(impl->options, impl->config, impl->programs, *impl->records, *impl->process);
  impl->contexts_seen = impl->programs.contexts_opened();
  if (Status failed = impl->timing->begin(impl->found, impl->interrupt_cost_ns)) {
    if (!impl->process->is_alive())
      return Error{ExitCode::no_process, "process " + std::to_string(options.pid) +
                                             " exited while pollgap attached to it"};
    return *failed;
  }
  if (options.timing == "observe") {
    if (Status failed = impl->follow_threads()) return *failed;
    if (Status failed = impl->timing->check_observed(impl->shares_core)) return *failed;
  }
  impl->trace.attach_new();
  impl->trace_searched_ns = monotonic_ns();
  impl->tell_session();
  impl->tell_agent_window(EV_AGENT_ATTACH, start);
  impl->sampler.emplace(impl->programs, options.threshold_ns);
  impl->guard.emplace([timing = &*impl->timing] { timing->shed(); });
  return std::unique_ptr<CaptureSession>(new CaptureSession(std::move(impl)));
}

Status CaptureSession::drain(int timeout_ms, const Sink& sink) {
  impl_->guard->turn();
  if (Status failed = impl_->follow_threads()) return failed;
  const bool all = impl_->flush(sink, kBytesAtOnce);
  impl_->drained(all);
  pollfd end{impl_->process->pidfd(), POLLIN, 0};
  poll(&end, 1, all ? timeout_ms : kBehindMs);
  if (Status failed = impl_->timing->maintain(impl_->sampler->cpu_ns())) return failed;
  impl_->sampler->set_period(impl_->timing->look_period_ns());
  if (Status failed = impl_->follow_threads()) return failed;  // maintain() may have found some
  if (Status failed = impl_->attach_new_contexts()) return failed;
  impl_->attach_new_trace_events();
  impl_->drained(impl_->flush(sink, kBytesAtOnce));
  return std::nullopt;
}

bool CaptureSession::target_gone() const {
  return impl_->called_exec || !impl_->process->is_alive();
}

const char* CaptureSession::target_end() const {
  if (impl_->called_exec) return "called exec";
  return impl_->process->is_alive() ? "" : "exited";
}

Status CaptureSession::close(const Sink& sink) {
  Impl& impl = *impl_;
  const uint64_t asked = impl.sampler ? impl.sampler->asked() : 0;
  Json coverage = impl.coverage();
  coverage["silence_samples"] = asked;
  impl.sampler.reset();
  (void)impl.follow_threads();  // what remains to be done is not done on a polled core
  impl.flush(sink);
  impl.timing->finish([&](std::span<const std::byte> record) { impl.deliver(record, sink); });
  const uint64_t start = monotonic_ns();
  impl.guard.reset();
  impl.timing->detach();
  impl.trace.detach();
  impl.tell_agent_window(EV_AGENT_DETACH, start);
  impl.flush(sink);
  coverage["lost_records"] = impl.programs.lost_records();
  const std::string text = coverage.dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto record = text_record(EV_COVERAGE, monotonic_ns(), text);
  if (!record.empty()) sink(record);
  return std::nullopt;
}

const Sites& CaptureSession::sites() const { return impl_->found; }

std::vector<std::string> CaptureSession::take_announcements() {
  return impl_->timing->take_announcements();
}

}  // namespace pollgap
