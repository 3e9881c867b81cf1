// SPDX-License-Identifier: Apache-2.0
// Tracepoints of drivers and modules that tell what an RDMA adapter and its connections went
// through: found in tracefs while the session lasts, attached where they exist, decoded by the
// formats of the running kernel. Owns the links; they go when it is destroyed or the agent dies.
#pragma once

#include <bpf/libbpf.h>

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "agent/capture/trace_format.h"
#include "bpf/evidence.h"

namespace pollgap {

class TraceEvents {
 public:
  // `wanted`: tracepoints to follow besides those of RDMA, "GROUP:EVENT", in which * and ? stand
  // for any characters. `program` must outlive it.
  TraceEvents(const bpf_program* program, const std::vector<std::string>& wanted);

  // Are there tracepoints now that are wanted and not attached? Reads a few directories.
  bool any_new();
  // Attaches to them.
  void attach_new();
  void detach() { links_.clear(); }

  // The ev_trace_event of a record that the program wrote; empty if its number is not known.
  std::vector<std::byte> decode(const ev_trace& record);

  // Adds trace_events, the names of those attached, and notes: what could not be attached, and what
  // was wanted and never there.
  void tell(nlohmann::ordered_json& coverage, std::vector<std::string>& notes) const;

 private:
  struct Pattern {
    std::string group;
    std::string event;
    bool by_user = false;
    bool matched = false;
  };

  void find(Pattern& pattern);
  void attach(const std::string& group, const std::string& event);

  const bpf_program* program_;
  std::vector<Pattern> patterns_;
  TraceFormats formats_;
  std::set<std::string> seen_;  // "GROUP:EVENT": attached, or tried in vain
  std::vector<std::pair<std::string, std::string>> found_;  // not yet tried
  std::vector<std::string> attached_;
  std::vector<std::string> failures_;
  std::vector<std::unique_ptr<bpf_link, int (*)(bpf_link*)>> links_;
};

}  // namespace pollgap
