// SPDX-License-Identifier: Apache-2.0
// Members of JSON objects, written and read by one list: a function `members(visitor, object)`
// names each member once, and MemberWriter or MemberReader visits it.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <concepts>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "agent/ledger/gap.h"

namespace pollgap {

template <typename T, typename U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

// "0x7f12": 64-bit addresses do not survive readers that hold numbers as doubles.
inline std::string hex_text(uint64_t value) { return fmt::format("{:#x}", value); }

inline std::optional<uint64_t> parse_hex(std::string_view text) {
  uint64_t value = 0;
  if (!text.starts_with("0x")) return std::nullopt;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + 2, end, value, 16);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

// Enumerations go by their to_string() names.
template <typename Enum>
std::optional<Enum> parse_enum(std::string_view text, Enum last) {
  for (int i = 0; i <= static_cast<int>(last); ++i)
    if (text == to_string(static_cast<Enum>(i))) return static_cast<Enum>(i);
  return std::nullopt;
}
constexpr Cause last_of(Cause) { return Cause::unexplained; }
constexpr GapKind last_of(GapKind) { return GapKind::stalled; }
constexpr Confidence last_of(Confidence) { return Confidence::high; }

// Texts by name, in an order that is kept: an object whose members the kernel named.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;

class MemberWriter {
 public:
  using Json = nlohmann::ordered_json;
  static constexpr bool reading = false;

  explicit MemberWriter(Json& object) : object_(object) {}

  template <typename T>
  void required(const char* key, const T& value) {
    object_.emplace(key, encode(value));
  }
  // Left out when it says nothing.
  template <typename T>
  void optional(const char* key, const T& value, const T& nothing = T()) {
    if (value != nothing) required(key, value);
  }
  template <typename T>
  void optional(const char* key, const std::optional<T>& value) {
    if (value) required(key, *value);
  }
  template <typename T>
  void optional(const char* key, const std::vector<T>& value) {
    if (!value.empty()) required(key, value);
  }
  void required_hex(const char* key, uint64_t value) { object_.emplace(key, hex_text(value)); }
  void optional_hex(const char* key, uint64_t value) {
    if (value != 0) required_hex(key, value);
  }
  void optional_hex(const char* key, const std::optional<uint64_t>& value) {
    if (value) required_hex(key, *value);
  }
  // null when 0 or empty: not known
  void nullable_hex(const char* key, uint64_t value) {
    object_.emplace(key, value == 0 ? Json() : Json(hex_text(value)));
  }
  void nullable(const char* key, const std::string& value) {
    object_.emplace(key, value.empty() ? Json() : Json(value));
  }

  template <typename T>
  static Json encode(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      return to_string(value);
    } else if constexpr (std::is_arithmetic_v<T> || std::same_as<T, std::string>) {
      return value;
    } else {
      Json object = Json::object();
      MemberWriter writer(object);
      members(writer, value);
      return object;
    }
  }
  static Json encode(const NamedTexts& texts) {
    Json object = Json::object();
    for (const auto& [name, text] : texts) object[name] = text;
    return object;
  }
  template <typename T>
  static Json encode(const std::vector<T>& values) {
    Json array = Json::array();
    array.get_ref<Json::array_t&>().reserve(values.size());
    for (const T& value : values) array.push_back(encode(value));
    return array;
  }

 private:
  Json& object_;
};

// Keeps the first thing that did not fit, with its path: "verdict.share is not a number".
class MemberReader {
 public:
  using Json = nlohmann::ordered_json;
  static constexpr bool reading = true;

  MemberReader(const Json& value, std::string& error) : value_(value), error_(error) {
    if (!value.is_object()) fail("", "is not an object");
  }

  template <typename T>
  void required(const char* key, T& value) {
    const Json* found = find(key);
    if (found == nullptr) return fail(key, "is missing");
    decode(*found, value, key);
  }
  template <typename T>
  void optional(const char* key, T& value) {
    if (const Json* found = find(key)) decode(*found, value, key);
  }
  template <typename T>
  void optional(const char* key, T& value, const T& nothing) {
    value = nothing;
    optional(key, value);
  }
  template <typename T>
  void optional(const char* key, std::optional<T>& value) {
    if (const Json* found = find(key)) decode(*found, value.emplace(), key);
  }
  void required_hex(const char* key, uint64_t& value) {
    const Json* found = find(key);
    if (found == nullptr) return fail(key, "is missing");
    decode_hex(*found, value, key);
  }
  void optional_hex(const char* key, uint64_t& value) {
    if (const Json* found = find(key)) decode_hex(*found, value, key);
  }
  void optional_hex(const char* key, std::optional<uint64_t>& value) {
    if (const Json* found = find(key)) decode_hex(*found, value.emplace(), key);
  }
  void nullable_hex(const char* key, uint64_t& value) {
    const Json* found = find(key);
    if (found == nullptr) return fail(key, "is missing");
    if (!found->is_null()) decode_hex(*found, value, key);
  }
  void nullable(const char* key, std::string& value) {
    const Json* found = find(key);
    if (found == nullptr) return fail(key, "is missing");
    if (!found->is_null()) decode(*found, value, key);
  }

 private:
  const Json* find(const char* key) const {
    if (!value_.is_object()) return nullptr;
    const auto found = value_.find(key);
    return found == value_.end() ? nullptr : &*found;
  }

  void fail(std::string_view key, std::string_view what) {
    if (!error_.empty()) return;
    error_ = key.empty() ? std::string(what) : fmt::format("{} {}", key, what);
  }

  void decode(const Json& json, std::string& value, std::string_view key) {
    if (!json.is_string()) return fail(key, "is not a string");
    value = json.get_ref<const std::string&>();
  }
  void decode(const Json& json, bool& value, std::string_view key) {
    if (!json.is_boolean()) return fail(key, "is not true or false");
    value = json.get<bool>();
  }
  void decode(const Json& json, double& value, std::string_view key) {
    if (!json.is_number()) return fail(key, "is not a number");
    value = json.get<double>();
  }
  template <std::integral T>
  void decode(const Json& json, T& value, std::string_view key) {
    if (json.is_number_unsigned()) {
      const auto number = json.get<uint64_t>();
      if (!std::in_range<T>(number)) return fail(key, "is out of range");
      value = static_cast<T>(number);
    } else if (json.is_number_integer()) {
      const auto number = json.get<int64_t>();
      if (!std::in_range<T>(number)) return fail(key, "is out of range");
      value = static_cast<T>(number);
    } else {
      fail(key, "is not an integer");
    }
  }
  void decode(const Json& json, NamedTexts& texts, std::string_view key) {
    if (!json.is_object()) return fail(key, "is not an object");
    texts.clear();
    for (const auto& [name, text] : json.items())
      decode(text, texts.emplace_back(name, std::string()).second, fmt::format("{}.{}", key, name));
  }
  template <typename T>
  void decode(const Json& json, std::vector<T>& values, std::string_view key) {
    if (!json.is_array()) return fail(key, "is not an array");
    values.clear();
    values.reserve(json.size());
    for (const Json& item : json) {
      const std::string item_key = fmt::format("{}[{}]", key, values.size());
      decode(item, values.emplace_back(), item_key);
    }
  }
  template <typename T>
  void decode(const Json& json, T& value, std::string_view key) {
    if constexpr (std::is_enum_v<T>) {
      const auto parsed = json.is_string()
                              ? parse_enum(json.get_ref<const std::string&>(), last_of(T()))
                              : std::nullopt;
      if (!parsed) return fail(key, "has a value that is not known");
      value = *parsed;
    } else {
      std::string inner;
      MemberReader reader(json, inner);
      members(reader, value);
      if (inner.empty()) return;
      fail("", inner.starts_with("is ") ? fmt::format("{} {}", key, inner)
                                        : fmt::format("{}.{}", key, inner));
    }
  }
  void decode_hex(const Json& json, uint64_t& value, std::string_view key) {
    const auto parsed =
        json.is_string() ? parse_hex(json.get_ref<const std::string&>()) : std::nullopt;
    if (!parsed) return fail(key, "is not a hexadecimal string like \"0x7f12\"");
    value = *parsed;
  }

  const Json& value_;
  std::string& error_;
};

}  // namespace pollgap
