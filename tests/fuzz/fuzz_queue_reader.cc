// SPDX-License-Identifier: Apache-2.0
// What observes CQs and send queues, on memory that changes in any way under it. The input is a
// list of writes into a memory that holds a CQ and a QP: 2 bytes where, 1 byte what kind of value
// and whether to look after it, 8 bytes the value.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "agent/observe/cq_watch.h"
#include "probes/queue_reader.h"
#include "probes/readable_queues.h"
#include "tests/unit/probes_synthetic_mlx5.h"

namespace pollgap {
namespace {

using Mlx5 = SyntheticMlx5;
using Memory = SyntheticMemory;

Memory& memory() {
  static Memory whole(1 << 14 << 2);
  return whole;
}

class Borrowed : public MemoryReader {
 public:
  size_t read(uint64_t address, std::span<std::byte> out) override {
    return memory().read(address, out);
  }
};

void write_into_memory(const uint8_t* record) {
  uint16_t place = 0;
  uint64_t value = 0;
  memcpy(&place, record, sizeof(place));
  memcpy(&value, record + 3, sizeof(value));
  const size_t size = memory().bytes().size();
  const uint64_t word = Memory::heap + place / 4 * 4 % (size - 8);
  switch (record[2] % 4) {
    case 0:
      memory().put(word, value);
      break;
    case 1:
      memory().put(word, Memory::heap + value % size);
      break;
    case 2:
      memory().put(word, static_cast<uint32_t>(value));
      break;
    case 3:
      memory().put(word, static_cast<uint8_t>(value));
      break;
  }
}

void check(bool holds) {
  if (!holds) abort();
}

}  // namespace
}  // namespace pollgap

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace pollgap;
  static const MemoryMap map = memory().map();
  memory().clear();
  Mlx5 mlx5{memory(), mlx5_cq_layouts()[0], mlx5_send_queue_layouts()[4]};
  mlx5.put_all(250);
  for (uint32_t i = 0; i < 4; ++i) mlx5.put_request(i, i, i == 2);
  mlx5.put_next_block(4);
  mlx5.put_indices(4, 1);
  const CqInfo cq = mlx5.cq_info();
  const auto ring = find_cq_ring(memory(), map, cq, mlx5.cq_layout);
  const auto sends = find_send_queue(memory(), map, mlx5.qp_info(), mlx5.send_layout);
  check(ring && sends);

  QueueReader reader(std::make_unique<Borrowed>());
  reader.add(*ring, mlx5.cq_layout, {*sends});
  constexpr uint64_t period_ns = 200'000, threshold_ns = 1'000'000;
  CqWatch watch(cq.address, threshold_ns);
  uint64_t now = 1'000'000;
  for (; bytes >= 11; data += 11, bytes -= 11) {
    write_into_memory(data);
    if ((data[2] & 4) != 0) continue;
    now += period_ns;
    reader.read();
    const CqReading& reading = reader.cq(0);
    for (const SendIndices& indices : reader.sends(0))
      check(!reading.intact || indices.outstanding() <= Mlx5::send_blocks);
    if (!reading.intact) {
      const auto again = find_again(memory(), map, {*ring, &mlx5.cq_layout, {}, 0});
      check(!again || (again->entries != 0 && map.find(again->ring) != nullptr));
      continue;
    }
    const auto silence =
        watch.look({now, now + 1000}, reading.consumer_index, reading.next, reader.sends(0));
    check(!silence || silence->end.until_ns - silence->begin.after_ns >= threshold_ns);
    if (const auto unsure = watch.unsure_of()) {
      const auto signaled = reader.signaled(0, *unsure);
      check(!signaled || signaled->count <= Mlx5::send_blocks);
      watch.signaled(*unsure, signaled.value_or(SignaledSends{}));
    }
  }
  return 0;
}
