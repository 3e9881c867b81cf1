// SPDX-License-Identifier: Apache-2.0
// A soft mlx5 adapter in this process: the distribution's unmodified libibverbs and libmlx5 run on
// it. Linked into a program, it does nothing until start(); then the libc calls that libibverbs
// makes to find and drive a device (open, stat, ioctl, mmap, close) are answered here, and a device
// thread plays the adapter. All functions are thread-safe; times are nanoseconds.
#pragma once

#include <cstdint>
#include <string>

namespace pollgap::soft_hca {

struct Options {
  int cpu = -1;                      // of the device thread; -1: anywhere
  bool spin = true;                  // the device thread spins (else sleeps ~20 us between rounds)
  uint64_t completion_delay_ns = 0;  // from doorbell to CQE, every completion
  uint64_t registration_ns_per_page = 0;  // ibv_reg_mr spends this per 4 KiB page, besides pinning
};

// Makes the device "mlx5_0" appear. Call once, before any verbs call. Returns an empty string, or
// one line saying what failed.
std::string start(const Options& options);

// Ends the device thread and removes what start() left on disk. Also runs at exit.
void stop();

// Changes completion_delay_ns from now on.
void set_completion_delay(uint64_t delay_ns);

// No CQE is written to any CQ until `duration_ns` from now; those that fell due are written then.
// Returns the CLOCK_MONOTONIC time at which delivery resumes.
uint64_t hold_completions(uint64_t duration_ns);

// Puts the QP into the error state; all its posted receives and unfinished sends complete with
// flush errors (syndrome 0x05). If `first_syndrome` is not 0, one requester error CQE with that
// syndrome and vendor error (0x15 retry exceeded, 0x16 RNR exceeded, ...) comes before them, for
// the oldest unfinished send, if there is one. The CQEs are written newest first, so that a poller
// sees none of them until all are there: one poll with a large enough array then handles the storm.
// Returns how many CQEs were written, or -1: no such QP.
int64_t fail_qp(uint32_t qp_num, uint8_t first_syndrome, uint8_t vendor_err);

}  // namespace pollgap::soft_hca
