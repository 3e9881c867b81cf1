// SPDX-License-Identifier: Apache-2.0
// The rules behind advise(), one per cause. Each appends sentences for one segment's detail, none
// when the detail says too little.
#pragma once

#include <string>
#include <vector>

#include "agent/ledger/gap.h"
#include "agent/report/session_info.h"

namespace pollgap::advice {

using Sentences = std::vector<std::string>;

struct Context {
  const Gap& gap;
  const HostFacts& host;
};

// The online CPUs but the gap's own, as a list ("0-2,4-7"), or "LIST" where the online CPUs are not
// known. Empty: the machine has no other CPU.
std::string other_cpus(const Context& context);

// "stress-ng (pid 812)", or with the tid where it is not the main thread.
std::string task_name(const TaskRef& task);

void preemption(const Detail& detail, const Context& context, Sentences& out);
void throttled(const Detail& detail, const Context& context, Sentences& out);
void stopped(const Detail& detail, const Context& context, Sentences& out);
void blocked(const Detail& detail, const Context& context, Sentences& out);
void stolen(const Detail& detail, const Context& context, Sentences& out);

void hard_irq(const Detail& detail, const Context& context, Sentences& out);
void soft_irq(const Detail& detail, const Context& context, Sentences& out);
void nmi(const Detail& detail, const Context& context, Sentences& out);

void self_kernel(const Detail& detail, const Context& context, Sentences& out);
void control_verb(const Detail& detail, const Context& context, Sentences& out);
void application(const Detail& detail, const Context& context, Sentences& out);
void poll_function(const Detail& detail, const Context& context, Sentences& out);

void late_completion(const Detail& detail, const Context& context, Sentences& out);
// Only where its note names something that a person can change.
void unexplained(const Detail& detail, const Context& context, Sentences& out);
void error_completions(const ErrorCompletions& errors, Sentences& out);

}  // namespace pollgap::advice
