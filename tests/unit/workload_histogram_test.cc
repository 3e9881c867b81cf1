// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tools/workload/histogram.h"

namespace pollgap::workload {
namespace {

TEST(Histogram, EveryBucketBeginsWithItsFloorAndEndsBeforeTheNext) {
  for (unsigned bucket = 0; bucket < Histogram::buckets; ++bucket) {
    const uint64_t floor = Histogram::floor_of(bucket);
    EXPECT_EQ(Histogram::bucket_of(floor), bucket);
    if (bucket == 0) continue;
    EXPECT_GT(floor, Histogram::floor_of(bucket - 1));
    EXPECT_EQ(Histogram::bucket_of(floor - 1), bucket - 1);
  }
  EXPECT_EQ(Histogram::bucket_of(UINT64_MAX), Histogram::buckets - 1);
}

TEST(Histogram, ABucketIsAtMostAnEighthOfItsValuesWide) {
  for (unsigned bucket = 8; bucket + 1 < Histogram::buckets; ++bucket) {
    const uint64_t floor = Histogram::floor_of(bucket);
    EXPECT_LE(Histogram::floor_of(bucket + 1) - floor, floor / 8) << bucket;
  }
}

TEST(Histogram, Sums) {
  Histogram histogram;
  EXPECT_EQ(histogram.quantile(0.5), 0U);
  for (uint64_t value = 1; value <= 1000; ++value) histogram.add(value);
  EXPECT_EQ(histogram.total(), 1000U);
  EXPECT_EQ(histogram.sum(), 500500U);
  EXPECT_EQ(histogram.max(), 1000U);
  EXPECT_GE(histogram.quantile(0.5), 440U);
  EXPECT_LE(histogram.quantile(0.5), 500U);
  EXPECT_GE(histogram.quantile(0.99), 860U);
  EXPECT_LE(histogram.quantile(0.99), 990U);
}

TEST(Histogram, TellsWhatCameSinceACopy) {
  Histogram histogram;
  histogram.add(1);
  const Histogram before = histogram;
  histogram.add(5);
  histogram.add(5);
  const Histogram newer = histogram.since(before);
  EXPECT_EQ(newer.total(), 2U);
  EXPECT_EQ(newer.sum(), 10U);
  EXPECT_EQ(newer.quantile(0.5), 5U);
}

}  // namespace
}  // namespace pollgap::workload
