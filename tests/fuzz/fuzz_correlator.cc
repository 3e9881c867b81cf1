// SPDX-License-Identifier: Apache-2.0
// The correlator on any stream: no crash, and every ledger exact. The input is a sequence of
// records, each preceded by a byte for its kind; the header's kind and length are made to fit, so
// that the content is reached.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "agent/ledger/correlator.h"

namespace {

struct RecordShape {
  uint16_t kind;
  uint16_t bytes;
};

constexpr RecordShape kShapes[] = {
    {EV_RUN, sizeof(ev_run)},           {EV_OFF_CPU, sizeof(ev_off_cpu)},
    {EV_IRQ, sizeof(ev_irq)},           {EV_SOFTIRQ, sizeof(ev_softirq)},
    {EV_WORK, sizeof(ev_work)},         {EV_SELF, sizeof(ev_self)},
    {EV_VERB, sizeof(ev_verb)},         {EV_SAMPLE, sizeof(ev_sample)},
    {EV_STACK, sizeof(ev_stack)},       {EV_SIGNAL, sizeof(ev_signal)},
    {EV_MIGRATE, sizeof(ev_migrate)},   {EV_GAP, sizeof(ev_gap)},
    {EV_WC_ERROR, sizeof(ev_wc_error)}, {EV_PROCESS, sizeof(ev_process)},
    {EV_NAME, sizeof(ev_name) + 64},    {EV_SESSION, sizeof(ev_text) + 128},
    {EV_COVERAGE, sizeof(ev_text) + 8}, {EV_AGENT, sizeof(ev_agent)},
    {EV_POLLS, sizeof(ev_polls)},       {EV_LOST, sizeof(ev_lost)},
    {EV_STEAL, sizeof(ev_steal)},       {EV_TRACE_EVENT, sizeof(ev_trace_event) + 64},
    {EV_SMI, sizeof(ev_smi)},           {EV_STANDSTILL, sizeof(ev_standstill)},
    {EV_STAMP, sizeof(ev_stamp)},
};

void check(const pollgap::Gap& gap) {
  uint64_t cursor_ns = 0;
  for (const pollgap::Segment& segment : gap.segments) {
    if (segment.offset_ns != cursor_ns || segment.duration_ns == 0) {
      std::abort();
    }
    cursor_ns += segment.duration_ns;
  }
  if (cursor_ns != gap.duration_ns || gap.segments.size() > 256 || gap.verdict.text.empty()) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pollgap::Correlator correlator({.threshold_ns = 1});
  std::vector<pollgap::Gap> gaps;
  while (size > 1) {
    const RecordShape shape = kShapes[data[0] % std::size(kShapes)];
    const bool as_it_is = data[0] >= 250;  // now and then nothing is made to fit
    ++data;
    --size;
    std::vector<std::byte> record(shape.bytes);
    const size_t taken = size < record.size() ? size : record.size();
    std::memcpy(record.data(), data, taken);
    data += taken;
    size -= taken;
    if (!as_it_is) {
      std::memcpy(record.data(), &shape.kind, sizeof(shape.kind));
      std::memcpy(record.data() + 2, &shape.bytes, sizeof(shape.bytes));
    }
    correlator.accept(record, gaps);
    for (const pollgap::Gap& gap : gaps) {
      check(gap);
    }
    gaps.clear();
  }
  correlator.finish(gaps);
  for (const pollgap::Gap& gap : gaps) {
    check(gap);
  }
  return 0;
}
