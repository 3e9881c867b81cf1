// SPDX-License-Identifier: Apache-2.0
// The scanner for verbs objects, on memory of any content. The input is a list of writes into a
// memory that holds a context with its queues: 2 bytes where, 1 byte what kind of value, 8 bytes
// the value.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "probes/live_context.h"
#include "tests/unit/probes_synthetic_memory.h"

namespace pollgap {
namespace {

using Memory = SyntheticMemory;

void write_into(Memory& memory, const uint8_t* record) {
  uint16_t place = 0;
  uint64_t value = 0;
  memcpy(&place, record, sizeof(place));
  memcpy(&value, record + 3, sizeof(value));
  switch (record[2] % 4) {
    case 0:
      break;
    case 1:
      value = Memory::heap + value % memory.bytes().size();
      break;
    case 2:
      value = Memory::provider + value % 0x20000;
      break;
    case 3:
      value = ~uint64_t{0};
      break;
  }
  memory.put(Memory::heap + place / 8 % (memory.bytes().size() / 8) * 8, value);
}

}  // namespace
}  // namespace pollgap

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace pollgap;
  static Memory memory(0x4000);
  constexpr uint64_t context = Memory::heap + 0x400;
  memory.clear();
  memory.bytes_read = 0;
  memory.put_context(context, Memory::heap + 0x1000);
  memory.put_cq(Memory::heap + 0x2000, context, 0, true);
  memory.put_qp(Memory::heap + 0x3000, context, 0, Memory::heap + 0x2000);
  for (; bytes >= 11; data += 11, bytes -= 11) write_into(memory, data);

  static const MemoryMap map = memory.map();
  LiveScanOptions options;
  options.max_contexts = 4;
  options.max_objects = 16;
  const LiveScan found =
      scan_live_contexts(memory, map, {Memory::command_fd, Memory::channel_fd}, options);
  if (found.contexts.size() > options.max_contexts) abort();
  for (const LiveContext& live : found.contexts) {
    // What is believed has been checked.
    if (map.find(live.info.poll_cq) == nullptr || live.info.device.empty()) abort();
    if (live.info.cqs.size() + live.info.qps.size() > options.max_objects) abort();
  }
  return 0;
}
