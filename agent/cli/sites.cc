// SPDX-License-Identifier: Apache-2.0
// pollgap sites: what there is to attach to in a process, and how it was found. Attaches nothing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "agent/cli/command.h"
#include "agent/report/escape.h"
#include "probes/discovery.h"

namespace pollgap {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  pid_t pid = 0;
  std::vector<std::string> poll_sites;
  bool json = false;
};

std::string hex_address(uint64_t address) { return fmt::format("{:#x}", address); }

// enum ibv_qp_state and enum ibv_qp_type of <infiniband/verbs.h>.
std::string qp_state(int state) {
  constexpr std::array kNames{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state >= 0 && static_cast<size_t>(state) < kNames.size()
             ? kNames[static_cast<size_t>(state)]
             : fmt::format("state {}", state);
}
std::string qp_type(int type) {
  switch (type) {
    case 2:
      return "RC";
    case 3:
      return "UC";
    case 4:
      return "UD";
    default:
      return fmt::format("type {}", type);
  }
}

// ---- JSON ----

const char* execution_name(ProbeExecution execution) {
  return execution == ProbeExecution::emulated ? "emulated" : "single_stepped";
}

Json to_json(const Site& site) {
  return {{"role", to_string(site.role)},
          {"name", site.name},
          {"module", site.module},
          {"function_address", hex_address(site.function_address)},
          {"function_offset", hex_address(site.function_offset)},
          {"entry_offset", hex_address(site.entry_offset)},
          {"entry_execution", execution_name(site.entry_execution)},
          {"return_execution", execution_name(site.first_execution)},
          {"arguments_intact", site.arguments_intact},
          {"found_by", site.found_by}};
}

Json to_json(const CqInfo& cq) {
  return {{"address", hex_address(cq.address)},
          {"handle", cq.handle},
          {"entries", cq.cqe},
          {"extended", cq.extended},
          {"event_channel", cq.channel != 0}};
}

Json to_json(const QpInfo& qp) {
  return {{"address", hex_address(qp.address)}, {"qp_num", qp.qp_num},
          {"type", qp_type(qp.type)},           {"state", qp_state(qp.state)},
          {"send_cq", hex_address(qp.send_cq)}, {"recv_cq", hex_address(qp.recv_cq)}};
}

Json to_json(const ThreadInfo& thread) {
  return {{"tid", thread.tid},           {"comm", thread.comm},          {"state", thread.state},
          {"cpus", thread.cpus},         {"last_cpu", thread.last_cpu},  {"policy", thread.policy},
          {"priority", thread.priority}, {"cpu_share", thread.cpu_share}};
}

Json to_json(const ContextInfo& context);

template <typename T>
Json to_json(const std::vector<T>& items) {
  Json array = Json::array();
  for (const T& item : items) array.push_back(to_json(item));
  return array;
}

Json to_json(const ContextInfo& context) {
  return {{"address", hex_address(context.address)},
          {"device", context.device},
          {"provider", context.provider},
          {"poll_cq", hex_address(context.poll_cq)},
          {"post_send", hex_address(context.post_send)},
          {"post_recv", hex_address(context.post_recv)},
          {"cqs", to_json(context.cqs)},
          {"qps", to_json(context.qps)}};
}

std::string json_text(const Sites& sites) {
  const Json json{{"schema", "pollgap.sites/1"},
                  {"pid", sites.pid},
                  {"executable", sites.executable},
                  {"contexts", to_json(sites.contexts)},
                  {"sites", to_json(sites.sites)},
                  {"threads", to_json(sites.threads)},
                  {"notes", sites.notes}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// ---- text ----

std::string price(ProbeExecution execution) {
  return execution == ProbeExecution::emulated
             ? "emulated: the cheap kind"
             : "single-stepped: several times the price of an emulated one";
}

void add_site(std::string& out, const Site& site) {
  out += fmt::format("  {:<11} {}\n", to_string(site.role), terminal_escaped(site.name));
  out +=
      fmt::format("              {}+{:#x}\n", terminal_escaped(site.module), site.function_offset);
  out += fmt::format("              probe at +{:#x}, {}{}\n", site.entry_offset,
                     price(site.entry_execution),
                     site.arguments_intact ? "" : "; arguments are gone there: CQs not told apart");
  for (const std::string& how : site.found_by)
    out += fmt::format("              found by {}\n", terminal_escaped(how));
}

void add_sites_text(std::string& out, const Sites& sites) {
  const auto is_verb = [](const Site& site) { return site.role == SiteRole::verb; };
  out += "\nPoll and post functions\n";
  std::vector<std::string> verbs;
  for (const Site& site : sites.sites) {
    if (is_verb(site))
      verbs.push_back(terminal_escaped(site.name));
    else
      add_site(out, site);
  }
  if (std::ranges::all_of(sites.sites, is_verb)) out += "  none\n";
  if (!verbs.empty())
    out += fmt::format("\nControl verbs that are timed\n  {}\n", fmt::join(verbs, ", "));
}

void add_context(std::string& out, const ContextInfo& context) {
  out += fmt::format("\nContext {:#x}: {} through {}\n", context.address,
                     terminal_escaped(context.device), terminal_escaped(context.provider));
  for (const CqInfo& cq : context.cqs)
    out += fmt::format("  CQ {:#x}  {} entries{}{}\n", cq.address, cq.cqe,
                       cq.extended ? ", extended" : "",
                       cq.channel != 0 ? ", with an event channel" : "");
  for (const QpInfo& qp : context.qps)
    out += fmt::format("  QP {:<6} {} {}, sends to CQ {:#x}, receives from CQ {:#x}\n", qp.qp_num,
                       qp_type(qp.type), qp_state(qp.state), qp.send_cq, qp.recv_cq);
}

void add_threads(std::string& out, const Sites& sites) {
  std::vector<ThreadInfo> threads = sites.threads;
  std::ranges::stable_sort(threads, std::greater{}, &ThreadInfo::cpu_share);
  out += fmt::format(
      "\nThreads, busiest first: one that polls uses nearly all of a CPU\n"
      "  {:>8}  {:<16} {:>5}  {:<5} {:<14} {:<8} {}\n",
      "tid", "name", "busy", "state", "policy", "on CPU", "may run on");
  for (const ThreadInfo& thread : threads)
    out += fmt::format("  {:>8}  {:<16} {:>4.0f}%  {:<5} {:<14} {:<8} {}\n", thread.tid,
                       terminal_escaped(thread.comm), thread.cpu_share * 100, thread.state,
                       fmt::format("{} {}", thread.policy, thread.priority), thread.last_cpu,
                       terminal_escaped(thread.cpus));
}

std::string text_of(const Sites& sites) {
  std::string out = fmt::format("Process {}: {}\n", sites.pid, terminal_escaped(sites.executable));
  add_sites_text(out, sites);
  for (const ContextInfo& context : sites.contexts) add_context(out, context);
  add_threads(out, sites);
  if (!sites.notes.empty()) out += "\nNotes\n";
  for (const std::string& note : sites.notes)
    out += fmt::format("  - {}\n", terminal_escaped(note));
  return out;
}

ExitCode show_sites(const Options& options) {
  DiscoveryOptions discovery;
  discovery.poll_sites = options.poll_sites;
  const auto sites = discover(options.pid, discovery);
  if (!sites) return tell(sites.error());
  print(options.json ? json_text(sites.value()) : text_of(sites.value()));
  if (Status failed = output_error()) return tell(*failed);
  return ExitCode::done;
}

}  // namespace

void add_sites(CLI::App& app, ExitCode& exit) {
  auto* command = app.add_subcommand(
      "sites",
      "Show the poll functions, CQs, QPs and threads of a process, and how they were found");
  auto options = std::make_shared<Options>();
  command->add_option("--pid", options->pid, "The process")->required()->check(CLI::PositiveNumber);
  command->add_option("--poll-site", options->poll_sites,
                      "Code that polls without verbs: FILE:SYMBOL or FILE+0xOFFSET");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &exit] { exit = show_sites(*options); });
}

}  // namespace pollgap
