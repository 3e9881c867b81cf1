// SPDX-License-Identifier: Apache-2.0
#include "agent/ledger/dictionary.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "agent/timeline/timeline.h"

namespace pollgap {
namespace {

// Length of the valid UTF-8 sequence at the start of `bytes`, 0 if there is none (RFC 3629).
size_t utf8_sequence_bytes(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) {
    return 1;
  }
  const size_t length = lead >= 0xc2 && lead <= 0xdf   ? 2
                        : lead >= 0xe0 && lead <= 0xef ? 3
                        : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                       : 0;
  if (length == 0 || length > bytes.size()) {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) {
      return 0;
    }
  }
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  const bool refused = (lead == 0xe0 && at(1) < 0xa0) || (lead == 0xed && at(1) > 0x9f) ||
                       (lead == 0xf0 && at(1) < 0x90) || (lead == 0xf4 && at(1) > 0x8f);
  return refused ? 0 : length;
}

std::string string_member(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? printable(found->get<std::string>())
                                                     : std::string();
}

uint64_t number_member(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

nlohmann::json parse_object(const std::string& text) {
  nlohmann::json parsed = nlohmann::json::parse(text, nullptr, false);
  return parsed.is_object() ? parsed : nlohmann::json::object();
}

}  // namespace

std::string printable(std::string_view bytes) {
  bytes = bytes.substr(0, bytes.find('\0'));
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t length = utf8_sequence_bytes(bytes);
    const bool control = bytes[0] == 0x7f || (bytes[0] >= 0 && bytes[0] < 0x20);
    if (length == 0 || control) {
      out += '?';
      bytes.remove_prefix(1);
    } else {
      out += bytes.substr(0, length);
      bytes.remove_prefix(length);
    }
  }
  return out;
}

std::string hex(uint64_t value) { return fmt::format("{:#x}", value); }

bool Dictionary::accept(std::span<const std::byte> record) {
  ev_name name;
  std::string_view text;
  if (record.size() < sizeof(name)) {
    return false;
  }
  std::memcpy(&name, record.data(), sizeof(name));
  if (name.name_kind >= kKinds || !trailing_text(record, sizeof(name), name.text_bytes, text)) {
    return false;
  }
  names_[name.name_kind][name.key] = printable(text);
  return true;
}

const std::string& Dictionary::find(ev_name_kind kind, uint64_t key) const {
  static const std::string unnamed;
  const auto found = names_[kind].find(key);
  return found == names_[kind].end() ? unnamed : found->second;
}

std::string Dictionary::kernel_function(uint64_t address) const {
  if (address == 0) {
    return {};
  }
  const std::string& name = find(EV_NAME_KERNEL_FUNCTION, address);
  return name.empty() ? hex(address) : name;
}

std::string Dictionary::cgroup(uint64_t id) const {
  if (id == 0) {
    return {};
  }
  const std::string& path = find(EV_NAME_CGROUP, id);
  return path.empty() ? fmt::format("cgroup {}", id) : path;
}

std::string Dictionary::syscall(int number) const {
  const std::string& name = find(EV_NAME_SYSCALL, static_cast<uint64_t>(number));
  return name.empty() ? fmt::format("system call {}", number) : name;
}

std::string Dictionary::verb(uint32_t id) const {
  const std::string& name = find(EV_NAME_VERB, id);
  return name.empty() ? fmt::format("verb {}", id) : name;
}

InterruptName Dictionary::interrupt(int irq) const {
  const nlohmann::json object = parse_object(find(EV_NAME_IRQ, static_cast<uint64_t>(irq)));
  return {string_member(object, "device"), string_member(object, "rdma_device"),
          string_member(object, "action"), string_member(object, "affinity")};
}

Frame Dictionary::user_frame(uint64_t address) const {
  const nlohmann::json object = parse_object(find(EV_NAME_USER_FRAME, address));
  return {.address = address,
          .function = string_member(object, "function"),
          .file = string_member(object, "file"),
          .line = static_cast<uint32_t>(number_member(object, "line")),
          .module = string_member(object, "module"),
          .module_offset = number_member(object, "offset")};
}

Frame Dictionary::kernel_frame(uint64_t address) const {
  return {.address = address,
          .function = find(EV_NAME_KERNEL_FUNCTION, address),
          .file = {},
          .line = 0,
          .module = "[kernel]",
          .module_offset = 0};
}

}  // namespace pollgap
