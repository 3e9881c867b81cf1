// SPDX-License-Identifier: Apache-2.0
// The adapter proper: it knows the queues, looks for work in them and on its links round by round,
// and carries it out when it is due. It belongs to the device thread alone, and neither locks nor
// waits; it allocates only while a fault holds CQEs back.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "tools/soft-hca/adapter_identity.h"
#include "tools/soft-hca/completion_writer.h"
#include "tools/soft-hca/counters.h"
#include "tools/soft-hca/faults.h"
#include "tools/soft-hca/link.h"
#include "tools/soft-hca/memory_table.h"
#include "tools/soft-hca/queue_pair.h"
#include "tools/soft-hca/requester.h"
#include "tools/soft-hca/responder.h"
#include "tools/soft-hca/timer_wheel.h"

namespace pollgap::soft_hca {

// Makes links to other processes, or tells that there is nobody. For the device thread; does not
// wait.
class Connector {
 public:
  virtual ~Connector() = default;
  virtual void request_link(uint32_t process) = 0;
  // There is something for the management thread: fault events, counters.
  virtual void notify() = 0;
};

// All functions but set_completion_delay(), counters() and the constructor are for the device
// thread. Objects added are the caller's, who removes them before freeing them.
class Device : private Routes {
 public:
  explicit Device(uint64_t completion_delay_ns);

  void add(QueuePair* queue_pair);
  void remove(QueuePair* queue_pair);
  void add(CompletionQueue* queue);
  void remove(CompletionQueue* queue);
  MemoryTable& memory() { return memory_; }

  // The process's own number among those that share the adapter, and who makes links to the others;
  // null: there are no others.
  void join(uint32_t process, Connector* connector);
  void add(Link* link);
  void remove(Link* link);
  // A link that was requested cannot be had now.
  void refuse_link(uint32_t process, uint64_t now_ns);

  // ibv_modify_qp: 0 or an errno value.
  int modify(QueuePair* queue_pair, const ib_uverbs_modify_qp& change);

  // One look at every queue and link, at a time that may be a little past. Returns whether there
  // was anything to do.
  bool round(uint64_t time_ns);

  // To be called before a time without rounds: what others send meanwhile is lost.
  void rest() { pause_links(true); }

  // The next time at which something known is due; UINT64_MAX when nothing is.
  uint64_t next_due_ns() const { return next_due_ns_; }

  // Nothing to look at: no queue pair, no completion queue and no fault.
  bool idle() const {
    return queue_pairs_.empty() && completion_queues_.empty() && faults_.next_end_ns() == kForEver;
  }

  Counters& counters() { return counters_; }
  Faults& faults() { return faults_; }

  // Faults: see soft_hca.h.
  void set_completion_delay(uint64_t delay_ns) { completion_delay_ns_.store(delay_ns); }
  uint64_t hold_until(uint64_t time_ns, uint64_t now_ns);
  // Ends a fault, or all (0), and with them what they hold back. False: no such fault.
  bool clear_fault(uint32_t id, uint64_t now_ns);
  int64_t fail(uint32_t queue_pair_number, uint8_t syndrome, uint8_t vendor);
  // The same with IBV_EVENT_QP_FATAL. False: no such queue pair.
  bool fail_fatally(uint32_t queue_pair_number);
  // False: no such CQ, or it has failed.
  bool overrun(uint32_t cq_number);
  bool has_cq(uint32_t cq_number) const;
  QueuePair* find(uint32_t number) const;
  template <typename Visit>
  void each_queue_pair(Visit visit) const {
    for (const QueuePair* queue_pair : queue_pairs_) visit(*queue_pair);
  }

 private:
  Route route_to(uint32_t queue_pair, uint64_t now_ns) override;
  bool serve(QueuePair* queue_pair, uint64_t time_ns);
  bool take_requests(Link* link, uint64_t time_ns);
  bool take_responses(Link* link, uint64_t time_ns);
  void end_timers(uint64_t time_ns);
  void serve(CompletionQueue* queue, uint64_t time_ns);
  void fail_users_of(const CompletionQueue& queue);
  void pause_links(bool paused);
  void notify(uint64_t time_ns);
  void note_due(uint64_t time_ns) {
    if (time_ns < next_due_ns_) next_due_ns_ = time_ns;
  }

  std::atomic<uint64_t> completion_delay_ns_;
  bool paused_ = false;
  uint64_t next_due_ns_ = 0;
  uint32_t process_ = 0;
  Connector* connector_ = nullptr;
  uint64_t notified_ns_ = 0;
  uint64_t notified_events_ = 0;
  Link own_link_;
  std::vector<Link*> links_;
  struct Way {
    Link* link = nullptr;
    bool requested = false;
    uint64_t ask_again_ns = 0;
  };
  std::array<Way, kMaxProcesses> ways_{};
  std::vector<QueuePair*> queue_pairs_;
  std::vector<CompletionQueue*> completion_queues_;
  std::array<QueuePair*, kMaxQueuePairs> by_slot_{};
  MemoryTable memory_;
  Counters counters_;
  Faults faults_;
  TimerWheel timers_;
  CompletionWriter completions_;
  Requester requester_;
  Responder responder_;
};

}  // namespace pollgap::soft_hca
