// SPDX-License-Identifier: Apache-2.0
// The rules that give a gap's time to causes, in the order in which they are applied: what an
// earlier rule took, a later one cannot take.
#pragma once

#include "agent/ledger/account.h"

namespace pollgap {

// 1. The thread could not have used the CPU: stopped, blocked, in a fault's I/O, throttled. What
//    happened on a core meanwhile is not this thread's loss.
void claim_unable_to_run(Account& account);

// 2. The machine stood still, and its SMIs are counted. Whatever ran then was kept from it.
void claim_standstills(Account& account);

// 3. Hard interrupts, then softirqs, on the CPU where the thread ran or waited for its turn. While
//    it waited also what lies between two interrupts, as in 6.
void claim_interrupts(Account& account);

// 4. It waited for the CPU: the tasks that ran instead.
void claim_waiting(Account& account);

// 5. On the CPU, but not in its own user code: control verbs, system calls, page faults.
void claim_own_kernel_time(Account& account);

// 6. On the CPU between hard interrupts of one kind that follow each other so closely that this is
//    the way out of one and into the next: no tracepoint shows it, and in a virtual machine it is
//    longer than most handlers.
void claim_between_interrupts(Account& account);

// 7. On the CPU with no kernel evidence: user code, as far as evidence supports that; stolen time;
//    the rest is unexplained.
void claim_user_time(Account& account);

// The origin of a stretch that the thread could not use, or of the way out of one.
uint32_t not_runnable_origin(Account& account, const OffCpu& off, uint64_t start_ns,
                             uint64_t end_ns);

// What stopped the thread, for a record with EV_OFF_STOPPED: the latest stop signal that was sent
// to it before it stopped; nullptr: none was seen.
const ev_signal* find_stop_signal(const Timeline& timeline, const OffCpu& off, uint32_t pid);

// How a throttled thread was kept off: CulpritKey::a of Cause::throttled.
enum class Throttle : uint64_t { cfs_quota, rt_runtime, fair_server, dl_runtime };
// CulpritKey::a of Cause::stopped.
enum class Stop : uint64_t { signal, ptrace, freezer };

}  // namespace pollgap
