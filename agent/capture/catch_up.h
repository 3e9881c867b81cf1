// SPDX-License-Identifier: Apache-2.0
// Lets the thread that drains the kernel's records keep up with them.
//
// On a housekeeping core full of other tasks an ordinary thread runs for some milliseconds in each
// hundred: less than it takes where tasks switch a hundred thousand times a second, and ever more
// records wait. So the thread is real-time, at the lowest priority, from when it is behind until it
// has not been for a while; it sleeps between two turns all the same.
#pragma once

#include <sched.h>

#include <cstdint>

namespace pollgap {

class CatchUp {
 public:
  CatchUp() = default;
  ~CatchUp() { lower(); }
  CatchUp(const CatchUp&) = delete;
  CatchUp& operator=(const CatchUp&) = delete;

  // By the thread that drains, after each turn: whether it took all that there was.
  void drained(bool all, uint64_t now_ns);
  // It has been real-time at some time.
  bool was_raised() const { return was_raised_; }

 private:
  void raise();
  void lower();

  bool raised_ = false;
  bool was_raised_ = false;
  uint64_t behind_ns_ = 0;  // when it last was
  int policy_ = SCHED_OTHER;
  sched_param parameters_{};
};

}  // namespace pollgap
