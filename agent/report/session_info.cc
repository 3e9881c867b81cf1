// SPDX-License-Identifier: Apache-2.0
#include "agent/report/session_info.h"

namespace pollgap {
namespace {

using Json = nlohmann::ordered_json;

Json object_member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : Json::object();
}

std::optional<uint64_t> unsigned_member(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

std::optional<ClockAnchor> clock_anchor(const Json& host) {
  const Json clock = object_member(host, "clock");
  const auto mono = unsigned_member(clock, "mono_ns");
  const auto realtime = unsigned_member(clock, "realtime_ns");
  if (!mono || !realtime) return std::nullopt;
  return ClockAnchor{*mono, *realtime};
}

HostFacts host_facts(const Json& host) {
  HostFacts facts;
  const auto cpus = host.find("online_cpus");
  if (cpus != host.end() && cpus->is_string()) facts.online_cpus = cpus->get<std::string>();
  const auto version = unsigned_member(host, "cgroup_version");
  if (version == 1 || version == 2) facts.cgroup_version = static_cast<int>(*version);
  return facts;
}

}  // namespace

SessionInfo session_info_of(const Json& root) {
  SessionInfo session;
  session.present = true;
  session.tool = object_member(root, "tool");
  session.host = object_member(root, "host");
  session.target = object_member(root, "target");
  session.options = object_member(root, "options");
  session.clock = clock_anchor(session.host);
  session.host_facts = host_facts(session.host);
  return session;
}

SessionInfo parse_session_info(const std::string& session_json) {
  const Json parsed = Json::parse(session_json, nullptr, /*allow_exceptions=*/false);
  SessionInfo session = session_info_of(parsed.is_object() ? parsed : Json::object());
  session.present = parsed.is_object();
  return session;
}

}  // namespace pollgap
