// SPDX-License-Identifier: Apache-2.0
#include "agent/ledger/session.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace pollgap {
namespace {

using nlohmann::json;

const json& member(const json& object, const char* name) {
  static const json absent;
  if (!object.is_object()) {
    return absent;
  }
  const auto found = object.find(name);
  return found == object.end() ? absent : *found;
}

uint64_t number(const json& value) {
  return value.is_number_unsigned() ? value.get<uint64_t>() : 0;
}

std::string text(const json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

// Since 6.12 a deadline server lends ordinary tasks their share of a core that real-time tasks
// keep busy (kernel/sched/fair.c, fair_server); before, the whole real-time runqueue was throttled.
bool has_fair_server(const std::string& release) {
  unsigned major = 0;
  unsigned minor = 0;
  if (std::sscanf(release.c_str(), "%u.%u", &major, &minor) != 2) {  // NOLINT(cert-err34-c)
    return false;
  }
  return major > 6 || (major == 6 && minor >= 12);
}

}  // namespace

Session parse_session(std::string_view json_text) {
  Session session;
  const json root = json::parse(json_text, nullptr, false);
  session.agent_pid = static_cast<uint32_t>(number(member(member(root, "tool"), "pid")));
  session.throttles_by_fair_server = has_fair_server(text(member(member(root, "host"), "kernel")));
  session.interrupt_cost_ns = number(member(member(root, "host"), "interrupt_cost_ns"));
  session.steal_at_ticks = text(member(member(root, "host"), "steal_read")) == "at_ticks";
  session.nothing_steals = text(member(member(root, "host"), "steal_clock")) == "none_needed";
  const json& sites = member(member(root, "target"), "sites");
  if (sites.is_array()) {
    for (const json& site : sites) {
      session.sites.push_back({.name = text(member(site, "name")),
                               .module = text(member(site, "module")),
                               .function_address = number(member(site, "function_address")),
                               .function_bytes = number(member(site, "function_bytes"))});
    }
  }
  const json& contexts = member(member(root, "target"), "contexts");
  if (contexts.is_array()) {
    for (const json& context : contexts) {
      session.rdma_devices.push_back(text(member(context, "device")));
    }
  }
  return session;
}

bool caused_by_agent(const ev_irq& irq, const Session& session) {
  return (irq.flags & EV_IRQ_FROM_AGENT) != 0 ||
         (session.agent_pid != 0 && irq.sender_pid == session.agent_pid);
}

}  // namespace pollgap
