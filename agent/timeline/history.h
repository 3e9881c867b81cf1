// SPDX-License-Identifier: Apache-2.0
// The recent records of one kind on one CPU or of one thread, sorted by when they ended.
//
// Memory is bounded twice: records that ended longer than a horizon ago are forgotten, and there
// is a hard cap on the number kept. Pushing does not allocate once the ring has grown to what the
// stream needs. T is a record struct with a member `header` (struct ev_header).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pollgap {

class HistoryLimits {
 public:
  // No gap that a person still asks about lasts longer with thousands of events in it; one that
  // does (a thread stopped for an hour) is explained by a single record that is kept.
  static constexpr uint64_t kHorizonNs = 120'000'000'000;
  static constexpr size_t kMaxRecords = 1 << 15;
  // A record may be written a little after one that ended later (an interrupt between reading the
  // clock and reserving the record). One that comes later than this many others is refused.
  static constexpr size_t kMaxDisplacement = 1024;
};

template <typename T>
class History {
 public:
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Oldest first.
  const T& operator[](size_t i) const { return slot(i); }

  // Latest end of a record that was dropped for the cap while it was inside the horizon: what
  // this history says of earlier times is not complete. 0: none was dropped.
  uint64_t evicted_until_ns() const { return evicted_until_ns_; }

  // Returns how many records that a coming gap could need were dropped: 0 or 1.
  size_t push(const T& record) {
    forget_older_than(record.header.end_ns);
    size_t evicted = 0;
    if (size_ == HistoryLimits::kMaxRecords) {
      evicted_until_ns_ = std::max<uint64_t>(evicted_until_ns_, slot(0).header.end_ns);
      pop_front();
      evicted = 1;
    } else if (size_ == slots_.size()) {
      grow();
    }
    slot(size_) = record;
    ++size_;
    return sink_last() ? evicted : evicted + 1;
  }

  // Index of the first record that ended after `ns`; size() if there is none.
  size_t first_ending_after(uint64_t ns) const {
    size_t low = 0;
    size_t high = size_;
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if ((*this)[middle].header.end_ns > ns) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  // Calls visit(record), in the order they ended, for each record that overlaps or touches
  // [start_ns, end_ns); one of no length counts where it lies.
  template <typename Visit>
  void for_each_overlapping(uint64_t start_ns, uint64_t end_ns, Visit visit) const {
    visit_overlapping(*this, start_ns, end_ns, visit);
  }
  // Likewise; visit may change the record, but not its times.
  template <typename Visit>
  void for_each_overlapping(uint64_t start_ns, uint64_t end_ns, Visit visit) {
    visit_overlapping(*this, start_ns, end_ns, visit);
  }

 private:
  template <typename Self, typename Visit>
  static void visit_overlapping(Self& self, uint64_t start_ns, uint64_t end_ns, Visit visit) {
    const size_t first = start_ns == 0 ? 0 : self.first_ending_after(start_ns - 1);
    for (size_t i = first; i < self.size_; ++i) {
      auto& record = self.slot(i);
      if (record.header.start_ns < end_ns) {
        visit(record);
      }
    }
  }

  const T& slot(size_t i) const { return slots_[(head_ + i) & (slots_.size() - 1)]; }
  T& slot(size_t i) { return slots_[(head_ + i) & (slots_.size() - 1)]; }

  void pop_front() {
    head_ = (head_ + 1) & (slots_.size() - 1);
    --size_;
  }

  void forget_older_than(uint64_t now_ns) {
    while (size_ > 0 && now_ns > slot(0).header.end_ns &&
           now_ns - slot(0).header.end_ns > HistoryLimits::kHorizonNs) {
      pop_front();
    }
  }

  void grow() {
    std::vector<T> larger(slots_.empty() ? 16 : slots_.size() * 2);
    for (size_t i = 0; i < size_; ++i) {
      larger[i] = slot(i);
    }
    slots_.swap(larger);
    head_ = 0;
  }

  // Moves the last record to its place by end. False: it came too late and was dropped.
  bool sink_last() {
    size_t i = size_ - 1;
    const size_t lowest =
        i > HistoryLimits::kMaxDisplacement ? i - HistoryLimits::kMaxDisplacement : 0;
    while (i > lowest && slot(i - 1).header.end_ns > slot(i).header.end_ns) {
      std::swap(slot(i - 1), slot(i));
      --i;
    }
    if (i == 0 || slot(i - 1).header.end_ns <= slot(i).header.end_ns) {
      return true;
    }
    evicted_until_ns_ = std::max<uint64_t>(evicted_until_ns_, slot(i).header.end_ns);
    for (; i + 1 < size_; ++i) {
      slot(i) = slot(i + 1);
    }
    --size_;
    return false;
  }

  std::vector<T> slots_;  // its size is 0 or a power of two
  size_t head_ = 0;
  size_t size_ = 0;
  uint64_t evicted_until_ns_ = 0;
};

}  // namespace pollgap
