// SPDX-License-Identifier: Apache-2.0
// A soft mlx5 adapter in this process: the distribution's unmodified libibverbs and libmlx5 run on
// it. Linked into a program, it does nothing until start(); then the libc calls that libibverbs
// makes to find and drive a device (open, openat, stat, ioctl, mmap, close, socket) are answered
// here, and a device thread plays the adapter. All functions are thread-safe; times are
// nanoseconds.
//
// There is one device with one InfiniBand port, and between queue pairs of this process, and of
// others on the same fabric, there are reliable connections (send, RDMA write and read, atomic
// operations; inline, immediate, shared receive queues) and datagrams; plain and extended CQs,
// completion channels, CQ resizing; up to 4194303 CQEs a CQ and 32768 requests a queue.
// Retransmission and receiver-not-ready timers run as the queue pair's attributes say. What is not
// provided is refused with the kernel's or the adapter's error.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace pollgap::soft_hca {

struct Options {
  int cpu = -1;      // of the device thread; -1: anywhere
  bool spin = true;  // the device thread spins (else sleeps between its rounds)
  uint64_t completion_delay_ns =
      0;  // from doorbell to CQE, all but flush errors, which come at once
  uint64_t registration_ns_per_page = 0;  // ibv_reg_mr spends this per 4 KiB page, besides pinning
  int nice =
      0;  // added to the device thread's: below 0 (needs CAP_SYS_NICE) others disturb it less
  // Of the device thread between rounds, when it does not spin; five times that after 1 ms without
  // work.
  uint64_t sleep_ns = 20'000;
  bool real_time = false;  // a sleeping device thread is SCHED_FIFO where that is permitted
  int cqe_version = 1;     // the newest that the adapter offers: 0 or 1
  // The adapter is shared with those processes of this user that name the same fabric, takes
  // control commands from other processes, and keeps the counters in its sysfs tree; empty: not.
  std::string fabric = {};
  std::string log = {};  // a file to which a line is added for what each fault does; needs fabric
};

// Makes the device "mlx5_0" appear, and hides real ones from this process. Call once, before any
// verbs call. Returns an empty string, or one line saying what failed.
std::string start(const Options& options);

// The same, but starts the device thread, and joins the fabric, only when the device is first
// opened, here or in a child of fork(). What fails then is said on standard error.
std::string start_at_first_open(const Options& options);

// The adapter's sysfs tree, as other processes find it while this one lives. Empty: not started, or
// mounting is not permitted (it needs CAP_SYS_ADMIN), and only libibverbs in this process finds it.
std::string sysfs_path();

// Carries out a control command (tools/soft-hca/control --help) and returns its answer, which
// begins with "ok" or "error".
std::string control(const std::string& command);

// Ends the device thread and removes the sysfs tree; verbs calls then fail with EIO. Also runs at
// exit. A killed process leaves nothing either.
void stop();

// Changes completion_delay_ns for what is posted from now on. Each queue pair keeps its order.
void set_completion_delay(uint64_t delay_ns);

// No CQE is written to any CQ until `duration_ns` from now; those that fell due are written then,
// and become visible together, CQ by CQ. A hold does not shorten an earlier one. Returns the
// CLOCK_MONOTONIC time at which delivery resumes; no CQE is written between this return and then.
uint64_t hold_completions(uint64_t duration_ns);

// Since when, by CLOCK_MONOTONIC, the CQ has had something to poll: when the adapter last wrote to
// it while all before had been polled; 0: never. Null: no CQ of the soft adapter. Valid until the
// CQ is destroyed.
const std::atomic<uint64_t>* ready_since_ns(const ibv_cq* cq);

// Puts the QP into the error state; all its posted receives and unfinished sends complete with
// flush errors (syndrome 0x05). If `first_syndrome` is not 0, one requester error CQE with that
// syndrome and vendor error (0x15 retry exceeded, 0x16 RNR exceeded, ...) comes before them, for
// the oldest unfinished send, if there is one. The CQEs are written newest first, so that a poller
// sees none of them until all are there: one poll with a large enough array then handles the storm.
// While completions are held they are written when the hold ends, those of several QPs together.
// Returns how many CQEs were (or will be) written, or -1: no such QP. A QP in RESET, which has
// nothing posted, stays there: 0.
int64_t fail_qp(uint32_t qp_num, uint8_t first_syndrome, uint8_t vendor_err);

}  // namespace pollgap::soft_hca
