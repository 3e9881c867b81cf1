// SPDX-License-Identifier: Apache-2.0
#include "agent/observe/adapter_clock.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace pollgap {
namespace {

// Samples reach back some ten seconds: longer, and the two clocks' rates may have changed.
constexpr uint64_t kApartNs = 20'000'000;
constexpr size_t kMostSamples = 512;
constexpr size_t kLeastSamples = 32;
constexpr double kLeastSpanNs = 5e8;

struct Point {
  double ticks = 0;                 // since the first
  double earliest = 0, latest = 0;  // host ns since the first

  double width() const { return latest - earliest; }
};

double slope(const Point& from, const Point& to) {
  return (to.latest - from.latest) / (to.ticks - from.ticks);
}

// Of points sorted by ticks: the edge of their lower convex hull over the mean of the ticks. Of all
// lines with no point below them, the one along it is closest to the points (in the sum).
std::pair<Point, Point> edge_below(const std::vector<Point>& points) {
  std::vector<Point> hull;
  double sum = 0;
  for (const Point& point : points) {
    sum += point.ticks;
    if (!hull.empty() && hull.back().ticks == point.ticks) {
      if (hull.back().latest <= point.latest) continue;
      hull.pop_back();
    }
    while (hull.size() > 1 &&
           slope(hull[hull.size() - 2], hull.back()) >= slope(hull.back(), point))
      hull.pop_back();
    hull.push_back(point);
  }
  const double mean = sum / static_cast<double>(points.size());
  auto to = std::ranges::find_if(hull, [mean](const Point& one) { return one.ticks > mean; });
  if (hull.size() < 2) return {hull.front(), hull.front()};
  to = std::clamp(to, hull.begin() + 1, hull.end() - 1);
  return {*std::prev(to), *to};
}

}  // namespace

void AdapterClock::add(uint64_t stamp, const Window& written) {
  if (!samples_.empty() && written.until_ns < samples_.back().written.until_ns + kApartNs) return;
  samples_.push_back({stamp, written});
  if (samples_.size() > kMostSamples) samples_.pop_front();
  stale_ = true;
}

void AdapterClock::fit() {
  line_.reset();
  stale_ = false;
  if (samples_.size() < kLeastSamples) return;
  const auto first = std::ranges::min_element(samples_, {}, &Sample::stamp);
  const uint64_t origin_ns = first->written.after_ns;
  const auto since = [origin_ns](uint64_t ns) {
    return static_cast<double>(static_cast<int64_t>(ns - origin_ns));
  };
  std::vector<Point> points;
  for (const Sample& sample : samples_)
    points.push_back({static_cast<double>(sample.stamp - first->stamp),
                      since(sample.written.after_ns), since(sample.written.until_ns)});
  std::ranges::sort(points, {}, &Point::ticks);
  const auto [from, to] = edge_below(points);
  if (from.ticks == to.ticks) return;
  const double rate = slope(from, to);
  const double at_origin = from.latest - rate * from.ticks;
  const size_t all = points.size();
  std::erase_if(points, [&](const Point& one) {  // written late
    return at_origin + rate * one.ticks < one.earliest;
  });
  if (2 * points.size() < all) return;
  // The windows of those that are left hold both this line and the true one: which are no further
  // apart in any than that is wide, and between two of them no further than in either.
  const Point &early = points.front(), &late = points.back();
  if (late.latest - early.latest < kLeastSpanNs) return;
  line_ = Line{.origin = first->stamp,
               .at_origin_ns = static_cast<double>(origin_ns) + at_origin,
               .ns_per_tick = rate,
               .from_ticks = early.ticks,
               .to_ticks = late.ticks,
               .uncertainty_ns = std::max(early.width(), late.width())};
}

std::optional<Window> AdapterClock::host_time(uint64_t stamp) {
  if (stale_) fit();
  if (!line_) return std::nullopt;
  const auto ticks = static_cast<double>(static_cast<int64_t>(stamp - line_->origin));
  const double beyond = std::max({0.0, line_->from_ticks - ticks, ticks - line_->to_ticks}) /
                        (line_->to_ticks - line_->from_ticks);
  if (beyond > 1) return std::nullopt;
  const double at_ns = line_->at_origin_ns + line_->ns_per_tick * ticks;
  const double uncertainty_ns = line_->uncertainty_ns * (1 + 2 * beyond);
  if (at_ns < uncertainty_ns) return std::nullopt;
  return Window{static_cast<uint64_t>(at_ns - uncertainty_ns),
                static_cast<uint64_t>(at_ns + uncertainty_ns)};
}

}  // namespace pollgap
