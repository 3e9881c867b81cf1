// SPDX-License-Identifier: Apache-2.0
// The constructors of all disturbances, each next to the file that has it.
#pragma once

#include <memory>

#include "tools/workload/disturbance.h"

namespace pollgap::workload {

using DisturbancePtr = std::unique_ptr<Disturbance>;

// application.cc
DisturbancePtr make_compute(const DisturbanceSpec& spec, unsigned index);
DisturbancePtr make_idle(const DisturbanceSpec& spec, unsigned index);
// blocked.cc
DisturbancePtr make_sleep(const DisturbanceSpec& spec, unsigned index);
DisturbancePtr make_futex(const DisturbanceSpec& spec, unsigned index);
// interrupts.cc
DisturbancePtr make_irq(const DisturbanceSpec& spec, unsigned index);
DisturbancePtr make_softirq(const DisturbanceSpec& spec, unsigned index);
DisturbancePtr make_ipi_storm(const DisturbanceSpec& spec, unsigned index);
// kworker.cc
DisturbancePtr make_kworker(const DisturbanceSpec& spec, unsigned index);
// preemption.cc
DisturbancePtr make_fifo(const DisturbanceSpec& spec, unsigned index);
DisturbancePtr make_ordinary(const DisturbanceSpec& spec, unsigned index);
// self_kernel.cc
DisturbancePtr make_minor_faults(const DisturbanceSpec& spec, unsigned index);
DisturbancePtr make_major_faults(const DisturbanceSpec& spec, unsigned index);
DisturbancePtr make_syscalls(const DisturbanceSpec& spec, unsigned index);
// throttled.cc
DisturbancePtr make_quota(const DisturbanceSpec& spec, unsigned index);
DisturbancePtr make_rt_throttle(const DisturbanceSpec& spec, unsigned index);
// control_verbs.cc
DisturbancePtr make_reg_mr(const DisturbanceSpec& spec, unsigned index);
DisturbancePtr make_verbs(const DisturbanceSpec& spec, unsigned index);
// device_irq.cc
DisturbancePtr make_irq_device(const DisturbanceSpec& spec, unsigned index);
// stopped.cc
DisturbancePtr make_stop(const DisturbanceSpec& spec, unsigned index);
// completions.cc
DisturbancePtr make_late(const DisturbanceSpec& spec, unsigned index);
DisturbancePtr make_errors(const DisturbanceSpec& spec, unsigned index);

}  // namespace pollgap::workload
