// SPDX-License-Identifier: Apache-2.0
// What observes CQs and send queues, on memory that changes in any way under it. The input is a
// list of writes into a memory that holds a CQ and a QP, of mlx5 and then of rxe: 2 bytes where,
// 1 byte what kind of value and whether to look after it, 8 bytes the value.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "agent/observe/cq_watch.h"
#include "probes/cq_layout.h"
#include "probes/queue_reader.h"
#include "probes/readable_queues.h"
#include "tests/unit/probes_synthetic_mlx5.h"
#include "tests/unit/probes_synthetic_rxe.h"

namespace pollgap {
namespace {

using Memory = SyntheticMemory;

class Borrowed : public MemoryReader {
 public:
  explicit Borrowed(Memory& memory) : memory_(memory) {}
  size_t read(uint64_t address, std::span<std::byte> out) override {
    return memory_.read(address, out);
  }

 private:
  Memory& memory_;
};

void write_into(Memory& memory, const uint8_t* record) {
  uint16_t place = 0;
  uint64_t value = 0;
  memcpy(&place, record, sizeof(place));
  memcpy(&value, record + 3, sizeof(value));
  const size_t size = memory.bytes().size();
  const uint64_t word = Memory::heap + place / 4 * 4 % (size - 8);
  switch (record[2] % 4) {
    case 0:
      memory.put(word, value);
      break;
    case 1:
      memory.put(word, Memory::heap + value % size);
      break;
    case 2:
      memory.put(word, static_cast<uint32_t>(value));
      break;
    case 3:
      memory.put(word, static_cast<uint8_t>(value));
      break;
  }
}

void check(bool holds) {
  if (!holds) abort();
}

// The memory holds a CQ and a QP of that provider, in order.
void observe(Memory& memory, const MemoryMap& map, const ContextInfo& context, uint32_t most_sends,
             std::span<const uint8_t> writes) {
  const ReadableQueues found = find_readable_queues(memory, map, std::span(&context, 1));
  check(found.cqs.size() == 1 && found.cqs[0].sends.size() == 1);
  const ReadableCq& cq = found.cqs[0];
  QueueReader reader(std::make_unique<Borrowed>(memory));
  reader.add(cq);
  constexpr uint64_t period_ns = 200'000, threshold_ns = 1'000'000;
  CqWatch watch(cq.ring.cq, threshold_ns);
  uint64_t now = 1'000'000;
  for (; writes.size() >= 11; writes = writes.subspan(11)) {
    write_into(memory, writes.data());
    if ((writes[2] & 4) != 0) continue;
    now += period_ns;
    reader.read();
    const CqReading& reading = reader.cq(0);
    for (const SendIndices& indices : reader.sends(0))
      check(!reading.intact || indices.outstanding() <= most_sends);
    if (!reading.intact) {
      const auto again = find_again(memory, map, cq);
      check(!again || (again->ring.entries != 0 && map.find(again->ring.ring) != nullptr));
      (void)find_readable_queues(memory, map, std::span(&context, 1));
      continue;
    }
    const auto silence = watch.look({now, now + 1000}, reading, reader.sends(0));
    check(!silence || silence->end.until_ns - silence->begin.after_ns >= threshold_ns);
    if (const auto unsure = watch.unsure_of()) {
      const auto signaled = reader.signaled(0, *unsure);
      check(!signaled || signaled->count <= most_sends);
      watch.signaled(*unsure, signaled);
    }
  }
}

ContextInfo context_of(const char* provider, const CqInfo& cq, const QpInfo& qp) {
  ContextInfo context;
  context.provider = provider;
  context.cqs.push_back(cq);
  context.qps.push_back(qp);
  return context;
}

void observe_mlx5(std::span<const uint8_t> writes) {
  static Memory memory(1 << 14 << 2);
  static const MemoryMap map = memory.map();
  memory.clear();
  SyntheticMlx5 mlx5{memory, mlx5_cq_layouts()[0], mlx5_send_queue_layouts()[4]};
  mlx5.put_all(250);
  for (uint32_t i = 0; i < 4; ++i) mlx5.put_request(i, i, i == 2);
  mlx5.put_next_block(4);
  mlx5.put_indices(4, 1);
  static const ContextInfo context =
      context_of("/usr/lib/libmlx5.so.1", mlx5.cq_info(), mlx5.qp_info());
  observe(memory, map, context, SyntheticMlx5::send_blocks, writes);
}

void observe_rxe(std::span<const uint8_t> writes) {
  static Memory memory(SyntheticRxe::bytes);
  static const MemoryMap map = SyntheticRxe::map();
  memory.clear();
  SyntheticRxe rxe{memory};
  rxe.put_all();
  for (uint32_t packet = 0; packet < 4; ++packet) {
    rxe.post(packet == 2 ? IBV_SEND_SIGNALED : 0);
    if (packet != 0) continue;
    rxe.complete(packet);
    rxe.add_entry(SyntheticRxe::send);
    rxe.consume();
  }
  static const ContextInfo context =
      context_of("/usr/lib/librxe-rdmav34.so", rxe.cq_info(), rxe.qp_info());
  observe(memory, map, context, SyntheticRxe::send_entries - 1, writes);
}

}  // namespace
}  // namespace pollgap

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  pollgap::observe_mlx5({data, bytes});
  pollgap::observe_rxe({data, bytes});
  return 0;
}
