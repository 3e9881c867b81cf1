// SPDX-License-Identifier: Apache-2.0
// Finds the gaps of one thread's polls of one CQ: the rules that pollgap uses too.
//
//   in_poll          one poll call that long: from its entry to its return
//   between_polls    from the return of a poll to the entry of the next
//   late_completion  polls went on, none returned a completion, and a signaled send was outstanding
//                    all the while
//
// A stall is an in_poll or between_polls gap of at least the stall threshold. A late_completion
// window begins at the latest of: the last completion returned, the moment the number of
// outstanding signaled sends left 0, the end of the last stall. It ends at the return of the poll
// that returns a completion, or at the return of the last poll before a stall begins; without a
// poll in it that found nothing it is none. So with a
// stall threshold no greater than the log threshold the gaps are disjoint; gaps between the two
// thresholds lie inside windows.
//
// Stamps are ticks of the cycle counter. No clock, no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pollgap::workload {

enum class GapKind : uint8_t { in_poll, between_polls, late_completion };
const char* to_string(GapKind kind);

struct GapRecord {
  uint64_t start_ticks = 0;
  uint64_t end_ticks = 0;
  // late_completion: by then the send was surely posted, where the gap begins before its post.
  uint64_t posted_ticks = 0;
  uint64_t polls = 0;        // late_completion: those in it that found nothing
  uint32_t completions = 0;  // returned by the poll that ended it
  uint64_t ready_ns = 0;     // when the first of these came, by CLOCK_MONOTONIC; 0: not known
  uint32_t outstanding = 0;  // signaled sends when it ended, before its completions
  GapKind kind = GapKind::in_poll;
  bool waited_for_event = false;
  bool open = false;  // late_completion: no completion had come when polling ended
};

class GapDetector {
 public:
  struct Thresholds {
    uint64_t log_ticks;    // shorter gaps are dropped
    uint64_t stall_ticks;  // see above
  };

  // Room for `capacity` gaps is made, and touched, now: finding a gap never allocates.
  GapDetector(Thresholds thresholds, size_t capacity);

  // A signaled send is about to be posted. True if its window begins: then posted() is to tell when
  // it was posted, which may be much later, if the thread was kept from it.
  bool posts_signaled(uint64_t at) {
    if (outstanding_++ != 0) return false;
    open_window(at);
    return true;
  }
  void posted(uint64_t at) { window_posted_ = at; }

  // A poll was entered and returned `completions` work completions, `signaled_sends` of them of
  // signaled sends. waited: since the poll before it, the thread waited for a completion event.
  void polled(uint64_t entry, uint64_t exit, uint32_t completions, uint32_t signaled_sends,
              bool waited) {
    const uint64_t between = has_polled_ ? entry - last_exit_ : 0;
    const uint64_t inside = exit - entry;
    if (between >= least_ || inside >= least_) [[unlikely]] {
      long_poll(entry, exit, completions, waited);
    }
    if (completions != 0) returned_completions(exit, completions, signaled_sends);
    if (window_open_ && completions == 0) ++window_polls_;
    last_exit_ = exit;
    has_polled_ = true;
  }

  // Of the gaps from that number on, which the last poll ended.
  void completions_came(size_t from, uint64_t ns) {
    for (; from < gaps_.size(); ++from)
      if (gaps_[from].completions != 0) gaps_[from].ready_ns = ns;
  }

  // Polling has ended: a window that is still open is a gap with `open` set.
  void finish();

  const std::vector<GapRecord>& gaps() const { return gaps_; }
  uint64_t dropped() const { return dropped_; }  // for want of room
  uint32_t outstanding() const { return outstanding_; }

 private:
  void open_window(uint64_t at);
  void close_window(uint64_t at, uint32_t completions, bool open);
  void long_poll(uint64_t entry, uint64_t exit, uint32_t completions, bool waited);
  void returned_completions(uint64_t exit, uint32_t completions, uint32_t signaled_sends);
  void add(const GapRecord& gap);

  Thresholds thresholds_;
  uint64_t least_;  // the smaller threshold
  std::vector<GapRecord> gaps_;
  size_t capacity_;
  uint64_t dropped_ = 0;
  bool has_polled_ = false;
  uint64_t last_exit_ = 0;
  uint32_t outstanding_ = 0;  // signaled sends
  bool window_open_ = false;
  uint64_t window_start_ = 0;
  uint64_t window_posted_ = 0;
  uint64_t window_polls_ = 0;
};

}  // namespace pollgap::workload
