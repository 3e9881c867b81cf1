// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The kernel side of pollgap, one object: each source of evidence is a file of its own.
#include "irq.bpf.h"
#include "poll.bpf.h"
#include "sched.bpf.h"
#include "self.bpf.h"
#include "trace.bpf.h"

char program_license[] SEC("license") = "Dual BSD/GPL";
