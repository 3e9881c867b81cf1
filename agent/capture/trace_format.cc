// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/trace_format.h"

#include <traceevent/event-parse.h>
#include <traceevent/trace-seq.h>

#include <algorithm>
#include <cstring>

namespace pollgap {
namespace {

constexpr size_t kReachBytes = size_t{1} << 17;
constexpr size_t kMaxRecordBytes = size_t{1} << 15;
constexpr size_t kCommonBytes = 8;  // include/linux/trace_events.h: struct trace_entry
// Longer texts say no more to a person.
constexpr size_t kMaxText = 512;
constexpr size_t kMaxFieldText = 256;

// Print formats call these on fields in the network's byte order.
template <typename T>
unsigned long long swap_bytes(trace_seq*, unsigned long long* arguments) {
  const auto value = static_cast<T>(arguments[0]);
  if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
  return __builtin_bswap64(value);
}

void register_function(tep_handle& handle, tep_func_handler function, std::string name) {
  tep_register_print_function(&handle, function, TEP_FUNC_ARG_LONG, name.data(), TEP_FUNC_ARG_LONG,
                              TEP_FUNC_ARG_VOID);
}

class TraceText {
 public:
  TraceText() { trace_seq_init(&sequence_); }
  TraceText(const TraceText&) = delete;
  TraceText& operator=(const TraceText&) = delete;
  ~TraceText() { trace_seq_destroy(&sequence_); }

  trace_seq* sequence() { return &sequence_; }
  // Without white space at its end: firmware and some print formats end with a line break.
  std::string take(size_t most) {
    trace_seq_terminate(&sequence_);
    std::string text(sequence_.buffer, std::min<size_t>(sequence_.len, most));
    text.erase(text.find_last_not_of(" \t\r\n") + 1);
    return text;
  }

 private:
  trace_seq sequence_{};
};

// Where the field's last byte is, as the record has it: of a dynamic field, what it points to.
size_t end_of(tep_handle& handle, const tep_format_field& field, const std::byte* record) {
  const size_t end = static_cast<size_t>(field.offset) + static_cast<size_t>(field.size);
  if ((field.flags & TEP_FIELD_IS_DYNAMIC) == 0) return end;
  const unsigned long long where = tep_read_number(&handle, record + field.offset, field.size);
  const size_t base = (field.flags & TEP_FIELD_IS_RELATIVE) != 0 ? end : 0;
  return base + (where & 0xffff) + ((where >> 16) & 0xffff);
}

bool lies_in_a_record(const tep_format_field& field) {
  return field.offset >= 0 && field.size >= 0 &&
         static_cast<size_t>(field.offset) + static_cast<size_t>(field.size) <= kMaxRecordBytes;
}

std::string field_text(const tep_format_field& field, std::vector<std::byte>& record) {
  TraceText text;
  tep_print_field_content(text.sequence(), record.data(), static_cast<int>(record.size()),
                          const_cast<tep_format_field*>(&field));
  return text.take(kMaxFieldText);
}

}  // namespace

void TraceFormats::Free::operator()(tep_handle* handle) const { tep_free(handle); }

TraceFormats::TraceFormats() : handle_(tep_alloc()), reach_(kReachBytes) {
  tep_set_loglevel(TEP_LOG_NONE);  // else it writes to standard error
  tep_set_long_size(handle_.get(), sizeof(long));
  tep_set_file_bigendian(handle_.get(),
                         tep_is_bigendian() != 0 ? TEP_BIG_ENDIAN : TEP_LITTLE_ENDIAN);
  register_function(*handle_, swap_bytes<uint16_t>, "__builtin_bswap16");
  register_function(*handle_, swap_bytes<uint32_t>, "__builtin_bswap32");
  register_function(*handle_, swap_bytes<uint64_t>, "__builtin_bswap64");
}

Result<uint32_t> TraceFormats::add(const std::string& group, const std::string& format) {
  tep_event* event = nullptr;
  // A print format that it cannot read is no failure: the fields are printed then.
  tep_parse_format(handle_.get(), &event, format.data(), format.size(), group.c_str());
  if (event == nullptr)
    return Error{ExitCode::other, "libtraceevent cannot read the format of an event of " + group};
  const std::string name = group + ":" + event->name;
  for (const tep_format_field* field = event->format.fields; field != nullptr; field = field->next)
    if (!lies_in_a_record(*field))
      return Error{ExitCode::other, "field " + std::string(field->name) + " of tracepoint " + name +
                                        " lies in no record"};
  events_.push_back({name, event});
  return static_cast<uint32_t>(events_.size() - 1);
}

std::string TraceFormats::print(size_t record_bytes) {
  tep_record record{};
  record.data = reach_.data();
  record.size = static_cast<int>(record_bytes);
  TraceText text;
  tep_print_event(handle_.get(), text.sequence(), &record, "%s", TEP_PRINT_INFO);
  return text.take(kMaxText);
}

DecodedTrace TraceFormats::decode(uint32_t number, std::span<const std::byte> record) {
  const Event& event = events_[number];
  DecodedTrace decoded{.event = event.name, .text = {}, .fields = {}, .truncated = false};
  record = record.first(std::min(record.size(), kMaxRecordBytes));
  std::fill(reach_.begin(), reach_.begin() + kMaxRecordBytes, std::byte{0});
  std::copy(record.begin(), record.end(), reach_.begin());
  // The common type, by which libtraceevent finds the event again.
  const auto type = static_cast<uint16_t>(event.event->id);
  std::fill_n(reach_.begin(), kCommonBytes, std::byte{0});
  std::memcpy(reach_.data(), &type, sizeof(type));

  std::string all;
  for (const tep_format_field* field = event.event->format.fields; field != nullptr;
       field = field->next) {
    decoded.truncated =
        decoded.truncated || end_of(*handle_, *field, reach_.data()) > record.size();
    decoded.fields.emplace_back(field->name, field_text(*field, reach_));
    all +=
        (all.empty() ? "" : " ") + decoded.fields.back().first + "=" + decoded.fields.back().second;
  }
  const bool unreadable = (event.event->flags & TEP_EVENT_FL_FAILED) != 0;
  decoded.text = unreadable ? all.substr(0, kMaxText) : print(record.size());
  return decoded;
}

}  // namespace pollgap
