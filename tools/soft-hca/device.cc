// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/device.h"

#include <algorithm>
#include <limits>

#include "tools/soft-hca/clock.h"

namespace pollgap::soft_hca {
namespace {

// How many records of one link are taken before the others get their turn.
constexpr int kRecordsPerTurn = 64;
// How soon a process that was not there is looked for again.
constexpr uint64_t kAskAgainNs = 10'000'000;
constexpr uint64_t kNotifyNs = 10'000'000;

template <typename T>
void erase(std::vector<T*>* list, T* item) {
  const auto at = std::find(list->begin(), list->end(), item);
  if (at == list->end()) return;
  *at = list->back();
  list->pop_back();
}

}  // namespace

Device::Device(uint64_t completion_delay_ns)
    : completion_delay_ns_(completion_delay_ns),
      own_link_(0),
      memory_(kMaxMemoryRegions),
      timers_(now_ns()),
      completions_(&faults_, &counters_),
      requester_(this, &memory_, &completions_, &counters_, &faults_, &timers_),
      responder_(&memory_, &completions_, &counters_, &faults_, &requester_) {
  queue_pairs_.reserve(kMaxQueuePairs);
  completion_queues_.reserve(kMaxCompletionQueues);
  links_.reserve(size_t{2} * kMaxProcesses);
  links_.push_back(&own_link_);
  ways_[process_].link = &own_link_;
}

void Device::join(uint32_t process, Connector* connector) {
  ways_[process_].link = nullptr;
  process_ = process;
  connector_ = connector;
  ways_[process_].link = &own_link_;
}

void Device::add(Link* link) {
  links_.push_back(link);
  link->set_paused(paused_);
  Way& way = ways_[link->process()];
  if (way.link == nullptr) way.link = link;
  way.requested = false;
}

// Two processes that ask for each other at the same time have two links, and either will do.
void Device::remove(Link* link) {
  erase(&links_, link);
  Way& way = ways_[link->process()];
  if (way.link != link) return;
  const auto other = std::find_if(links_.begin(), links_.end(), [&](const Link* candidate) {
    return candidate->process() == link->process();
  });
  way = {other == links_.end() ? nullptr : *other, false, 0};
}

void Device::refuse_link(uint32_t process, uint64_t now_ns) {
  ways_[process].requested = false;
  ways_[process].ask_again_ns = now_ns + kAskAgainNs;
}

Route Device::route_to(uint32_t queue_pair, uint64_t now_ns) {
  const uint32_t process = process_of(queue_pair);
  Way& way = ways_[process];
  if (way.link != nullptr) return {Route::State::up, way.link};
  if (connector_ == nullptr || now_ns < way.ask_again_ns) return {};
  if (!way.requested) {
    way.requested = true;
    connector_->request_link(process);
  }
  return {Route::State::pending, nullptr};
}

void Device::add(QueuePair* queue_pair) {
  queue_pairs_.push_back(queue_pair);
  by_slot_[queue_pair->number() % kMaxQueuePairs] = queue_pair;
}

void Device::remove(QueuePair* queue_pair) {
  requester_.abandon(queue_pair);
  queue_pair->config().send_cq->forget(queue_pair->number());
  queue_pair->config().receive_cq->forget(queue_pair->number());
  erase(&queue_pairs_, queue_pair);
  by_slot_[queue_pair->number() % kMaxQueuePairs] = nullptr;
}

void Device::add(CompletionQueue* queue) { completion_queues_.push_back(queue); }

void Device::remove(CompletionQueue* queue) { erase(&completion_queues_, queue); }

QueuePair* Device::find(uint32_t number) const {
  QueuePair* queue_pair = by_slot_[number % kMaxQueuePairs];
  return queue_pair != nullptr && queue_pair->number() == number ? queue_pair : nullptr;
}

bool Device::has_cq(uint32_t cq_number) const {
  return std::any_of(completion_queues_.begin(), completion_queues_.end(),
                     [&](const CompletionQueue* queue) { return queue->number() == cq_number; });
}

// A move to ERR is flushed in the next round. libmlx5 forgets the CQEs of a queue pair that is
// reset, so none may come afterwards.
int Device::modify(QueuePair* queue_pair, const ib_uverbs_modify_qp& change) {
  const int error = queue_pair->modify(change);
  if (error != 0) return error;
  const ibv_qp_state state = queue_pair->state();
  if (state == IBV_QPS_RESET || state == IBV_QPS_ERR) requester_.abandon(queue_pair);
  if (state == IBV_QPS_RESET) {
    queue_pair->config().send_cq->forget(queue_pair->number());
    queue_pair->config().receive_cq->forget(queue_pair->number());
  }
  return 0;
}

uint64_t Device::hold_until(uint64_t time_ns, uint64_t now_ns) {
  const uint64_t before = faults_.held_until_ns(0, 0);
  if (before >= time_ns || time_ns <= now_ns) return std::max(before, time_ns);
  Fault hold;
  hold.kind = FaultKind::hold;
  hold.start_ns = now_ns;
  hold.end_ns = time_ns;
  if (faults_.add(hold) == 0) return std::max(before, now_ns);  // too many are in force
  return std::max(before, faults_.held_until_ns(0, 0));
}

bool Device::clear_fault(uint32_t id, uint64_t now_ns) {
  if (id == 0) {
    faults_.remove_all(now_ns);
  } else if (!faults_.remove(id, now_ns)) {
    return false;
  }
  for (CompletionQueue* queue : completion_queues_) {
    queue->shorten([&](uint32_t queue_pair) {
      return std::max(now_ns, faults_.held_until_ns(queue_pair, queue->number()));
    });
  }
  return true;
}

int64_t Device::fail(uint32_t queue_pair_number, uint8_t syndrome, uint8_t vendor) {
  QueuePair* queue_pair = find(queue_pair_number);
  if (queue_pair == nullptr) return -1;
  if (queue_pair->state() == IBV_QPS_RESET) return 0;
  WorkError error;
  if (syndrome != 0) error = {WorkError::On::send, syndrome, vendor};
  requester_.abandon(queue_pair);
  queue_pair->fail(error);
  const uint32_t unfinished = CompletionWriter::count_unfinished(*queue_pair);
  completions_.flush(queue_pair, now_ns());
  queue_pair->config().send_cq->publish();
  queue_pair->config().receive_cq->publish();
  return unfinished;
}

bool Device::fail_fatally(uint32_t queue_pair_number) {
  QueuePair* queue_pair = find(queue_pair_number);
  if (queue_pair == nullptr || queue_pair->state() == IBV_QPS_RESET) return false;
  fail(queue_pair_number, 0, 0);
  queue_pair->post_async_event(IBV_EVENT_QP_FATAL);
  return true;
}

bool Device::overrun(uint32_t cq_number) {
  for (CompletionQueue* queue : completion_queues_) {
    if (queue->number() == cq_number) return queue->overrun();
  }
  return false;
}

// Queue pairs that use a failed CQ have a catastrophic error (InfiniBand specification volume 1,
// 11.6.3.1).
void Device::fail_users_of(const CompletionQueue& queue) {
  for (QueuePair* queue_pair : queue_pairs_) {
    const QueuePair::Config& config = queue_pair->config();
    const ibv_qp_state state = queue_pair->state();
    if (config.send_cq != &queue && config.receive_cq != &queue) continue;
    if (state == IBV_QPS_RESET || state == IBV_QPS_ERR) continue;
    fail_fatally(queue_pair->number());
  }
}

// What there is to do of one queue pair. In the error state everything ends, at once.
bool Device::serve(QueuePair* queue_pair, uint64_t time_ns) {
  const ibv_qp_state state = queue_pair->state();
  if (state == IBV_QPS_ERR) {
    if (completions_.flush(queue_pair, time_ns) != 0) return true;
    const uint64_t held = completions_.held_until_ns(*queue_pair);
    if (held > time_ns) note_due(held);
    return false;
  }
  if (state != IBV_QPS_RTS) return false;
  const uint64_t delay =
      std::max(completion_delay_ns_.load(std::memory_order_relaxed), faults_.doorbell_delay_ns());
  bool worked = queue_pair->observe(delay);
  note_due(queue_pair->admit(time_ns));
  if (!paused_) worked |= requester_.send_some(queue_pair, time_ns);
  return worked;
}

bool Device::take_requests(Link* link, uint64_t time_ns) {
  Packet packet;
  const std::byte* payload = nullptr;
  int taken = 0;
  for (; taken < kRecordsPerTurn; ++taken) {
    if (link->responses_out.reserve(kRecordBytes) == nullptr) break;
    if (!link->requests_in.front(&packet, &payload)) break;
    QueuePair* queue_pair = find(packet.to);
    if (queue_pair != nullptr && !is_response(packet.kind)) {
      responder_.take_request(queue_pair, link, packet, payload, time_ns);
    }
    link->requests_in.pop();
  }
  return taken != 0;
}

bool Device::take_responses(Link* link, uint64_t time_ns) {
  Packet packet;
  const std::byte* payload = nullptr;
  int taken = 0;
  for (; taken < kRecordsPerTurn && link->responses_in.front(&packet, &payload); ++taken) {
    QueuePair* queue_pair = find(packet.to);
    if (queue_pair != nullptr && is_response(packet.kind)) {
      requester_.take_response(queue_pair, packet, payload, time_ns);
    }
    link->responses_in.pop();
  }
  return taken != 0;
}

void Device::end_timers(uint64_t time_ns) {
  while (Timer* timer = timers_.take_ended(time_ns)) {
    requester_.time_out(static_cast<QueuePair*>(timer), time_ns);
  }
  note_due(timers_.next_look_ns());
}

void Device::serve(CompletionQueue* queue, uint64_t time_ns) {
  if (queue->has_held()) {
    note_due(queue->release(time_ns, [&](const CompletionQueue::Held& held) {
      if (held.fault == 0) return;
      faults_.log().add({FaultKind::delay, held.fault, held.queue_pair, queue->number(),
                         held.since_ns, now_ns(), 1});
    }));
  }
  queue->publish();  // flush errors, those of several queue pairs together
  if (queue->take_failure()) fail_users_of(*queue);
  queue->deliver_event();
}

void Device::pause_links(bool paused) {
  paused_ = paused;
  for (Link* link : links_) link->set_paused(paused);
}

// mlx5 reads its counters at most every ten milliseconds (lifespan), and so does whoever writes
// them down here.
void Device::notify(uint64_t time_ns) {
  if (connector_ == nullptr || time_ns - notified_ns_ < kNotifyNs) return;
  const uint64_t events = counters_.events();
  if (events == notified_events_ && faults_.log().empty()) return;
  notified_ns_ = time_ns;
  notified_events_ = events;
  connector_->notify();
}

bool Device::round(uint64_t time_ns) {
  next_due_ns_ = std::numeric_limits<uint64_t>::max();
  faults_.expire(time_ns);
  note_due(faults_.next_end_ns());
  if (faults_.paused(time_ns) != paused_) pause_links(!paused_);
  bool worked = false;
  for (QueuePair* queue_pair : queue_pairs_) worked |= serve(queue_pair, time_ns);
  if (paused_) {
    counters_.add(Counter::port_xmit_wait);
  } else {
    for (Link* link : links_) worked |= take_requests(link, time_ns);
    for (Link* link : links_) worked |= take_responses(link, time_ns);
  }
  end_timers(time_ns);
  for (CompletionQueue* queue : completion_queues_) serve(queue, time_ns);
  notify(time_ns);
  return worked;
}

}  // namespace pollgap::soft_hca
