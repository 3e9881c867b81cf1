// SPDX-License-Identifier: Apache-2.0
// What there is to say of a claim: the Detail and the culprit's name for its origin.
#pragma once

#include <string>

#include "agent/ledger/account.h"
#include "agent/ledger/gap.h"

namespace pollgap {

// What reports call an enum ev_vector: "local_timer".
const char* interrupt_kind(uint32_t vector);

Detail make_detail(const Account& account, const Origin& origin);

// "stress-ng/812", "irq 36 virtio1-req.0", "softirq HRTIMER", "nanosleep"
std::string culprit_name(Cause cause, const Detail& detail);

// "stress-ng/812"
std::string task_name(const TaskRef& task);

// The stack's frames with their names, innermost first; empty if it is not kept.
std::vector<Frame> user_stack(const Account& account, uint64_t stack_id);

}  // namespace pollgap
