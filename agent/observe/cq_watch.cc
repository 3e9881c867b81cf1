// SPDX-License-Identifier: Apache-2.0
#include "agent/observe/cq_watch.h"

#include <algorithm>

namespace pollgap {
namespace {

// A counter that seems to have gone back belongs to something else.
bool has_advanced(uint32_t from, uint32_t to) { return to - from < uint32_t{1} << 31; }

// It lasted so long at least, or at most.
uint64_t least_ns(const Window& from, const Window& to) {
  return to.after_ns > from.until_ns ? to.after_ns - from.until_ns : 0;
}
uint64_t most_ns(const Window& from, const Window& to) { return to.until_ns - from.after_ns; }

}  // namespace

void CqWatch::restart(Sends& queue, const SendIndices& indices, const Window& since) {
  queue = Sends{};
  queue.latest = indices;
  if (indices.outstanding() == 0) return;
  queue.since = since;
  queue.posted = indices.head;
}

void CqWatch::follow(Sends& queue, const SendIndices& indices, const Window& window) {
  const bool broken = indices.outstanding() == 0 || queue.latest.outstanding() == 0 ||
                      indices.tail != queue.latest.tail || !indices.exact;
  const bool more = indices.head != queue.latest.head;
  const bool none_known = queue.asks == Asks::no || queue.asks == Asks::untold;
  if (broken || (none_known && more)) {
    restart(queue, indices, window);
  } else {
    queue.latest = indices;
  }
}

void CqWatch::begin(const Window& window, uint32_t consumer_index,
                    std::span<const SendIndices> sends) {
  begin_ = window;
  absent_ns_ = window.after_ns;
  consumer_index_ = consumer_index;
  ready_.reset();
  error_.reset();
  stamp_.reset();
  sends_.resize(sends.size());
  for (size_t i = 0; i < sends.size(); ++i) restart(sends_[i], sends[i], window);
}

// A look at which nothing has been consumed since the last.
void CqWatch::go_on(LookTime when, const Window& window, const CqReading& reading,
                    std::span<const SendIndices> sends) {
  const NextCqe next = reading.next;
  if (next == NextCqe::absent && ready_) {  // an entry that went away: another CQ
    begin({when.begun_ns, when.ended_ns}, consumer_index_, sends);
    return;
  }
  if (next == NextCqe::absent) absent_ns_ = when.begun_ns;
  if (!ready_ && (next == NextCqe::ready || next == NextCqe::error)) {
    ready_ = Window{absent_ns_, when.ended_ns};
    if (next == NextCqe::error) error_ = reading.error;
    stamp_ = reading.next_stamp;
  }
  if (ready_) return;  // what is outstanding from then on is not waited for
  for (size_t i = 0; i < sends.size(); ++i) follow(sends_[i], sends[i], window);
}

std::optional<Silence> CqWatch::look(LookTime when, const CqReading& reading,
                                     std::span<const SendIndices> sends) {
  std::optional<Silence> ended;
  const uint32_t consumer_index = reading.consumer_index;
  const Window now{when.begun_ns, when.ended_ns};
  const Window since_last{last_.begun_ns, when.ended_ns};
  if (!seen_ || sends.size() != sends_.size() || !has_advanced(consumer_index_, consumer_index)) {
    begin(now, consumer_index, sends);
  } else {
    for (size_t i = 0; i < sends.size(); ++i)
      if (has_advanced(sends_[i].latest.head, sends[i].head))
        posted_ += sends[i].head - sends_[i].latest.head;
    const bool told = reading.unmoved || since_last.width_ns() <= reading.round_ns;
    exact_ = exact_ && told;
    if (consumer_index != consumer_index_ || !told) {
      consumed_ += consumer_index - consumer_index_;
      if (!ready_) stamp_ = reading.next_stamp;
      ended = silence(since_last, {absent_ns_, when.ended_ns});
      begin(since_last, consumer_index, sends);
    }
    go_on(when, since_last, reading, sends);
    if (ready_)
      for (size_t i = 0; i < sends.size(); ++i) sends_[i].latest.head = sends[i].head;
  }
  seen_ = true;
  last_ = when;
  return ended;
}

// `came`: when the completion that ends it came to lie ready, if no look found it so.
std::optional<Silence> CqWatch::silence(const Window& end, const Window& came) {
  if (most_ns(begin_, end) < threshold_ns_) return std::nullopt;
  Silence silence{.cq = cq_,
                  .begin = begin_,
                  .end = end,
                  .ready = ready_ ? *ready_ : came,
                  .outstanding = std::nullopt,
                  .signaled = 0,
                  .error = error_,
                  .stamp = stamp_,
                  .made = std::nullopt,
                  .open = false};
  bool known = true;  // whether anything signaled was outstanding
  for (const Sends& queue : sends_) {
    const bool said = queue.asks == Asks::yes || queue.asks == Asks::no;
    known = known && (said || queue.latest.outstanding() == 0);
    if (queue.asks != Asks::yes) continue;
    silence.signaled += queue.signaled;
    if (!silence.outstanding || queue.since.until_ns < silence.outstanding->until_ns)
      silence.outstanding = queue.since;
  }
  const Window vain_until = silence.outstanding ? *silence.outstanding : *silence.ready;
  if (known && least_ns(begin_, vain_until) >= threshold_ns_)
    idle_ns_ += least_ns(begin_, vain_until);
  return silence;
}

std::optional<Silence> CqWatch::so_far() const {
  CqWatch copy = *this;
  std::optional<Silence> silence =
      copy.silence({last_.begun_ns, last_.ended_ns}, {last_.begun_ns, last_.ended_ns});
  if (!silence) return std::nullopt;
  silence->open = true;
  if (!ready_) silence->ready.reset();
  return silence;
}

std::optional<size_t> CqWatch::unsure_of() const {
  if (ready_) return std::nullopt;
  const auto unsure = std::find_if(sends_.begin(), sends_.end(), [this](const Sends& queue) {
    return queue.latest.outstanding() != 0 && queue.asks == Asks::unknown &&
           least_ns(queue.since, {last_.begun_ns, last_.ended_ns}) >= threshold_ns_ / 2;
  });
  if (unsure == sends_.end()) return std::nullopt;
  return static_cast<size_t>(unsure - sends_.begin());
}

void CqWatch::signaled(size_t send_queue, const std::optional<SignaledSends>& sends) {
  if (send_queue >= sends_.size()) return;
  Sends& queue = sends_[send_queue];
  if (!sends) {
    queue.asks = Asks::untold;
    return;
  }
  queue.asks = sends->count > 0 ? Asks::yes : Asks::no;
  queue.signaled = sends->count;
  // Those before it need not complete on their own: it counts from when it was surely there.
  if (sends->count > 0 && sends->oldest >= queue.posted - queue.latest.tail)
    queue.since = {last_.begun_ns, last_.ended_ns};
}

}  // namespace pollgap
