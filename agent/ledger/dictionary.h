// SPDX-License-Identifier: Apache-2.0
// What addresses, ids and numbers are called: filled from the stream's EV_NAME records. What has
// no name there appears as its number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "agent/ledger/gap.h"
#include "bpf/evidence.h"

namespace pollgap {

// Text of a record, fit for reports: up to the first NUL; control characters and bytes that are
// not valid UTF-8 become '?'. The target chooses many of these texts and is not trusted.
std::string printable(std::string_view bytes);

template <size_t N>
std::string printable(const char (&bytes)[N]) {
  return printable(std::string_view(bytes, N));
}

struct InterruptName {
  std::string device;
  std::string rdma_device;
  std::string action;  // the name of its first handler
  std::string affinity;
};

class Dictionary {
 public:
  // Takes in an EV_NAME record. False: malformed.
  bool accept(std::span<const std::byte> record);

  // Empty if the stream did not name it.
  const std::string& find(ev_name_kind kind, uint64_t key) const;

  // The function's symbol, else the address in hex; empty for 0.
  std::string kernel_function(uint64_t address) const;
  std::string cgroup(uint64_t id) const;  // path, else "cgroup ID"; empty for 0
  std::string syscall(int number) const;  // "nanosleep", else "system call 35"
  std::string verb(uint32_t id) const;
  InterruptName interrupt(int irq) const;
  Frame user_frame(uint64_t address) const;
  Frame kernel_frame(uint64_t address) const;

 private:
  static constexpr size_t kKinds = EV_NAME_SYSCALL + 1;
  std::array<std::unordered_map<uint64_t, std::string>, kKinds> names_;
};

// "0x55d0c0de"
std::string hex(uint64_t value);

}  // namespace pollgap
