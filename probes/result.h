// SPDX-License-Identifier: Apache-2.0
// Errors that a caller can handle are values.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace pollgap {

// Exit codes of the command line: a stable contract.
enum class ExitCode : int {
  done = 0,
  other = 1,
  usage = 2,
  no_process = 3,
  no_privilege = 4,
  kernel_lacks = 5,
  no_poll_function = 6,
};

// One line for the user: what went wrong, with which object, and what to do about it.
struct Error {
  ExitCode code = ExitCode::other;
  std::string message;
};

// A value or an Error. Must be checked before value() is used.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const { return state_.index() == 0; }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

// Success, or an Error.
using Status = std::optional<Error>;

}  // namespace pollgap
