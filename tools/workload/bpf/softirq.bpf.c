/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Holds the polling core in the HRTIMER softirq. */
#include "tools/workload/bpf/timer.bpf.h"

static __always_inline void on_time(void) { spin(length_ns); }
