// SPDX-License-Identifier: Apache-2.0
// Formats of kernel tracepoints, as tracefs tells them, and records decoded by them. Layouts differ
// between kernels, so nothing here knows a field: what the format names is what comes out.
//
// Formats are believed, as the running kernel writes them; libtraceevent is not made for others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "probes/result.h"

struct tep_event;
struct tep_handle;

namespace pollgap {

struct DecodedTrace {
  std::string event;  // "mlx5:mlx5_cmd"
  // As the event's print format has it; its fields where that is beyond libtraceevent.
  std::string text;
  std::vector<std::pair<std::string, std::string>> fields;  // name and value, in the format's order
  bool truncated = false;  // the record was longer than what there is of it
};

class TraceFormats {
 public:
  TraceFormats();

  // Takes in the text of events/GROUP/EVENT/format; later records refer to it by its number, from 0
  // on. Errors: libtraceevent cannot read it, or its fields lie where no record has any.
  Result<uint32_t> add(const std::string& group, const std::string& format);
  size_t size() const { return events_.size(); }
  const std::string& name(uint32_t number) const { return events_[number].name; }

  // `record` is a tracepoint's record or its beginning; its first 8 bytes, the common fields, are
  // not looked at. number must be below size().
  DecodedTrace decode(uint32_t number, std::span<const std::byte> record);

 private:
  struct Event {
    std::string name;
    tep_event* event = nullptr;  // owned by the handle
  };
  struct Free {
    void operator()(tep_handle* handle) const;
  };

  // The record that reach_ holds, in the words of its print format.
  std::string print(size_t record_bytes);

  std::unique_ptr<tep_handle, Free> handle_;
  std::vector<Event> events_;
  // The record, and zeros as far as a dynamic field (16 bits of offset, 16 of length) can reach, so
  // that libtraceevent never reads beyond it.
  std::vector<std::byte> reach_;
};

}  // namespace pollgap
