// SPDX-License-Identifier: Apache-2.0
// A histogram over nanoseconds: a power of two is split into eight equal buckets, so a bucket's
// width is at most an eighth of its values, from 1 ns to centuries, in 4 KiB. One thread adds; any
// may read meanwhile.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace pollgap::workload {

class Histogram {
 public:
  static constexpr unsigned sub_bits = 3;
  static constexpr unsigned buckets = (64 - sub_bits + 1) << sub_bits;

  Histogram() = default;
  Histogram(const Histogram& other) { *this = other; }
  Histogram& operator=(const Histogram& other) {
    for (unsigned bucket = 0; bucket < buckets; ++bucket) set(counts_[bucket], other.count(bucket));
    set(sum_, other.sum());
    set(max_, other.max());
    return *this;
  }

  void add(uint64_t value) {
    std::atomic<uint64_t>& count = counts_[bucket_of(value)];
    set(count, get(count) + 1);
    set(sum_, sum() + value);
    if (value > max()) set(max_, value);
  }

  // What was added since `before` was copied; its max() is that of all.
  Histogram since(const Histogram& before) const {
    Histogram newer(*this);
    for (unsigned bucket = 0; bucket < buckets; ++bucket) {
      set(newer.counts_[bucket], newer.count(bucket) - before.count(bucket));
    }
    set(newer.sum_, newer.sum() - before.sum());
    return newer;
  }

  // Values below 8 have a bucket each; above, the three bits after the leading one choose.
  static constexpr unsigned bucket_of(uint64_t value) {
    if (value < (1U << sub_bits)) return static_cast<unsigned>(value);
    const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - 1 - sub_bits;
    return (shift << sub_bits) + static_cast<unsigned>(value >> shift);
  }

  // The smallest value of a bucket; that of the bucket after it bounds it.
  static constexpr uint64_t floor_of(unsigned bucket) {
    if (bucket < (2U << sub_bits)) return bucket;
    const unsigned shift = (bucket >> sub_bits) - 1;
    return ((uint64_t{bucket} & ((1U << sub_bits) - 1)) + (1U << sub_bits)) << shift;
  }

  uint64_t count(unsigned bucket) const { return get(counts_[bucket]); }
  uint64_t max() const { return get(max_); }
  uint64_t sum() const { return get(sum_); }

  uint64_t total() const {
    uint64_t total = 0;
    for (unsigned bucket = 0; bucket < buckets; ++bucket) total += count(bucket);
    return total;
  }

  // The floor of the bucket that holds the quantile (0..1).
  uint64_t quantile(double fraction) const {
    const auto wanted = static_cast<uint64_t>(fraction * static_cast<double>(total()));
    uint64_t seen = 0;
    for (unsigned bucket = 0; bucket < buckets; ++bucket) {
      seen += count(bucket);
      if (seen > wanted) return floor_of(bucket);
    }
    return max();
  }

 private:
  // One writer: no locked instruction.
  static uint64_t get(const std::atomic<uint64_t>& value) {
    return value.load(std::memory_order_relaxed);
  }
  static void set(std::atomic<uint64_t>& value, uint64_t to) {
    value.store(to, std::memory_order_relaxed);
  }

  std::array<std::atomic<uint64_t>, buckets> counts_{};
  std::atomic<uint64_t> sum_{0};
  std::atomic<uint64_t> max_{0};
};

}  // namespace pollgap::workload
