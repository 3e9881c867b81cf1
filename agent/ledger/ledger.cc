// SPDX-License-Identifier: Apache-2.0
#include "agent/ledger/ledger.h"

#include <algorithm>
#include <array>

#include "agent/ledger/account.h"
#include "agent/ledger/detail.h"
#include "agent/ledger/rules.h"
#include "agent/ledger/segments.h"
#include "agent/ledger/standstill.h"
#include "agent/ledger/trace_evidence.h"
#include "agent/ledger/verdict.h"
#include "bpf/config.h"

namespace pollgap {
namespace {

// The poll that ends a gap may report its errors a little after the gap's end.
constexpr uint64_t kReturnSlackNs = 100'000;

GapKind kind_of(uint32_t gap_kind) {
  switch (gap_kind) {
    case EV_GAP_IN_POLL:
      return GapKind::in_poll;
    case EV_GAP_LATE_COMPLETION:
      return GapKind::late_completion;
    case EV_GAP_UNPOLLED_COMPLETION:
      return GapKind::unpolled_completion;
    case EV_GAP_STALLED:
      return GapKind::stalled;
    default:
      return GapKind::between_polls;
  }
}

std::string status_name(uint32_t status) {
  // enum ibv_wc_status, <infiniband/verbs.h>
  static constexpr std::array kNames = {"SUCCESS",
                                        "LOC_LEN_ERR",
                                        "LOC_QP_OP_ERR",
                                        "LOC_EEC_OP_ERR",
                                        "LOC_PROT_ERR",
                                        "WR_FLUSH_ERR",
                                        "MW_BIND_ERR",
                                        "BAD_RESP_ERR",
                                        "LOC_ACCESS_ERR",
                                        "REM_INV_REQ_ERR",
                                        "REM_ACCESS_ERR",
                                        "REM_OP_ERR",
                                        "RETRY_EXC_ERR",
                                        "RNR_RETRY_EXC_ERR",
                                        "LOC_RDD_VIOL_ERR",
                                        "REM_INV_RD_REQ_ERR",
                                        "REM_ABORT_ERR",
                                        "INV_EECN_ERR",
                                        "INV_EEC_STATE_ERR",
                                        "FATAL_ERR",
                                        "RESP_TIMEOUT_ERR",
                                        "GENERAL_ERR",
                                        "TM_ERR",
                                        "TM_RNDV_INCOMPLETE"};
  return status < kNames.size() ? std::string("IBV_WC_") + kNames[status]
                                : "status " + std::to_string(status);
}

std::optional<ErrorCompletions> error_completions(const Account& account) {
  constexpr uint32_t kFlush = 5;  // IBV_WC_WR_FLUSH_ERR: a consequence, never a cause
  const GapRecord& gap = account.gap();
  ErrorCompletions errors;
  bool first_seen = false;
  if (account.thread() != nullptr) {
    account.thread()->wc_errors.for_each_overlapping(
        account.start_ns(),
        account.end_ns() + std::min(kReturnSlackNs, UINT64_MAX - account.end_ns()),
        [&](const ev_wc_error& error) {
          if (error.cq != gap.cq) {
            return;
          }
          errors.errors += error.errors;
          errors.flushes += error.flushes;
          if (!first_seen || (errors.first_status == kFlush && error.status != kFlush)) {
            first_seen = true;
            errors.first_status = error.status;
            errors.first_status_name = status_name(error.status);
            errors.first_qp_num = error.qp_num;
            errors.first_vendor_err = error.vendor_err;
          }
        });
  }
  errors.errors = std::max<uint64_t>(errors.errors, gap.error_completions);
  return errors.errors == 0 ? std::nullopt : std::optional(errors);
}

std::vector<Migration> migrations(const Account& account) {
  constexpr size_t kMaxMigrations = 256;
  std::vector<Migration> found;
  if (account.thread() != nullptr) {
    account.thread()->migrations.for_each_overlapping(
        account.start_ns(), account.end_ns(), [&](const ev_migrate& move) {
          if (move.header.start_ns >= account.start_ns() && found.size() < kMaxMigrations) {
            found.push_back(
                {move.header.start_ns - account.start_ns(), move.from_cpu, move.to_cpu});
          }
        });
  }
  return found;
}

GapEvidence gap_evidence(const Account& account) {
  const GapRecord& gap = account.gap();
  GapEvidence evidence{.end_stack = user_stack(account, gap.stacks.user),
                       .completions = gap.completions,
                       .outstanding = gap.outstanding,
                       .polls = gap.polls,
                       .steal_ns = std::nullopt,
                       .smis = std::nullopt,
                       .smis_before_ns = account.smis().before_ns,
                       .errors = error_completions(account),
                       .stamp = std::nullopt,
                       .migrations = migrations(account),
                       .trace_events = {},
                       .trace_events_left_out = 0,
                       .lost_records = account.lost_records()};
  if (account.steal().known) {
    evidence.steal_ns = account.steal().ns;
  }
  if (account.smis().known || account.smis().count > 0) {
    evidence.smis = account.smis().count;
  }
  if (const ev_stamp* stamp = account.stamp()) {
    evidence.stamp = CompletionStamp{.ticks = stamp->ticks,
                                     .made_after_ns = stamp->made_after_ns,
                                     .made_until_ns = stamp->made_until_ns,
                                     .written_after_ns = stamp->written_after_ns,
                                     .written_until_ns = stamp->written_until_ns};
  }
  add_trace_events(account, evidence);
  return evidence;
}

void apply_rules(Account& account) {
  claim_unable_to_run(account);
  claim_standstills(account);
  claim_interrupts(account);
  claim_waiting(account);
  claim_own_kernel_time(account);
  claim_between_interrupts(account);
  claim_user_time(account);
  const uint32_t rest = account.unexplained("no evidence");
  std::vector<Claim> wanted = account.free_intervals();
  for (Claim& claim : wanted) {
    claim.origin = rest;
  }
  account.claim(wanted);
}

}  // namespace

Gap make_gap(const Timeline& timeline, const Dictionary& names, const Session& session,
             const GapRecord& record) {
  Account account(timeline, names, session, record);
  apply_rules(account);
  const std::vector<Entry> entries = bound_entries(merge_claims(account));

  Gap gap{.kind = kind_of(record.gap_kind),
          .tid = record.tid,
          .thread = names.find(EV_NAME_THREAD, record.tid),
          .cpu = record.header.cpu,
          .cq = record.cq,
          .start_mono_ns = record.header.start_ns,
          .duration_ns = account.duration_ns(),
          .edge_uncertainty_ns = record.edge_uncertainty_ns,
          .open = (record.flags & EV_GAP_OPEN) != 0,
          .waited_for_event = (record.flags & EV_GAP_WAITED_EVENT) != 0,
          .verdict = {},
          .segments = {},
          .culprits = {},
          .evidence = gap_evidence(account)};
  for (const Entry& entry : entries) {
    gap.segments.push_back(
        {.offset_ns = entry.start_ns - account.start_ns(),
         .duration_ns = entry.length_ns(),
         .cause = entry.key.cause,
         .detail = detail_of(account, entry.key, entry.origin, entry.count, entry.samples)});
  }
  std::vector<CulpritDetail> culprits;
  for (const CulpritTotal& total : total_by_culprit(entries)) {
    Detail detail = detail_of(account, total.key, total.origin, total.count, total.samples);
    const bool others = total.key == others_of(total.key.cause);
    culprits.push_back(
        {.culprit = {.cause = total.key.cause,
                     .name = others ? "others" : culprit_name(total.key.cause, detail),
                     .total_ns = total.total_ns,
                     .count = std::max<uint64_t>(total.count, 1)},
         .detail = std::move(detail),
         .cpu = cpu_of(account.origin(total.origin), gap.cpu)});
    gap.culprits.push_back(culprits.back().culprit);
  }
  gap.verdict = make_verdict(account, entries, culprits, gap);
  return gap;
}

bool lacks_run(const Timeline& timeline, const GapRecord& gap) {
  for (const Stint& stint : thread_activity(timeline.thread(gap.tid), gap.header.start_ns,
                                            gap.header.end_ns, gap.start_cpu)) {
    if (stint.activity != Activity::runnable || !stint.moved_away) {
      continue;
    }
    const CpuTimeline* cpu = timeline.cpu(stint.cpu);
    if (cpu == nullptr || cpu->runs.first_ending_after(stint.end_ns - 1) == cpu->runs.size()) {
      return true;
    }
  }
  return false;
}

bool may_lack_standstill(const Timeline& timeline, const Dictionary& names, const Session& session,
                         const GapRecord& gap) {
  Account account(timeline, names, session, gap);
  if (account.smis().count > 0) {
    return true;
  }
  if (!standstill_matters(account)) {
    return false;
  }
  apply_rules(account);
  uint64_t user_ns = 0;
  for (const Claim& claim : account.claims()) {
    const Cause cause = account.origin(claim.origin).key.cause;
    user_ns += cause == Cause::application || cause == Cause::poll_function ? claim.length_ns() : 0;
  }
  return user_ns >= PG_STANDSTILL_NS;
}

bool lacks_steal_reading(const Timeline& timeline, const GapRecord& gap) {
  const CpuTimeline* cpu = timeline.cpu(gap.header.cpu);
  return cpu == nullptr ||
         cpu->steals.first_ending_after(gap.header.end_ns - 1) == cpu->steals.size();
}

}  // namespace pollgap
