// SPDX-License-Identifier: Apache-2.0
// The end of a session: sums of the polls, and the silences that go on.
#pragma once

#include "agent/capture/kernel_programs.h"
#include "agent/capture/record_queue.h"

namespace pollgap {

// Writes EV_POLLS of every thread and CQ.
void write_poll_sums(KernelPrograms& programs, const RecordSink& sink);

// For each thread that has not polled for the threshold: what it is in since when (an EV_OFF_CPU,
// or an EV_SELF, that is still open) and the gap so far, an EV_GAP with EV_GAP_OPEN.
void write_open_gaps(KernelPrograms& programs, RecordQueue& records, const pg_config& config,
                     const RecordSink& sink);

// Likewise what each target thread is in, without a gap.
void write_open_entries(KernelPrograms& programs, RecordQueue& records, const RecordSink& sink);

}  // namespace pollgap
