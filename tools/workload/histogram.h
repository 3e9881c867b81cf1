// SPDX-License-Identifier: Apache-2.0
// A histogram over nanoseconds: a power of two is split into eight equal buckets, so a bucket's
// width is at most an eighth of its values, from 1 ns to centuries, in 4 KiB.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace pollgap::workload {

class Histogram {
 public:
  static constexpr unsigned sub_bits = 3;
  static constexpr unsigned buckets = (64 - sub_bits + 1) << sub_bits;

  void add(uint64_t value) {
    ++counts_[bucket_of(value)];
    sum_ += value;
    if (value > max_) max_ = value;
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

  uint64_t count(unsigned bucket) const { return counts_[bucket]; }
  uint64_t max() const { return max_; }
  uint64_t sum() const { return sum_; }

  uint64_t total() const {
    uint64_t total = 0;
    for (const uint64_t count : counts_) total += count;
    return total;
  }

  // The floor of the bucket that holds the quantile (0..1).
  uint64_t quantile(double fraction) const {
    const auto wanted = static_cast<uint64_t>(fraction * static_cast<double>(total()));
    uint64_t seen = 0;
    for (unsigned bucket = 0; bucket < buckets; ++bucket) {
      seen += counts_[bucket];
      if (seen > wanted) return floor_of(bucket);
    }
    return max_;
  }

 private:
  std::array<uint64_t, buckets> counts_{};
  uint64_t sum_ = 0;
  uint64_t max_ = 0;
};

}  // namespace pollgap::workload
