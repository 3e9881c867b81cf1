// SPDX-License-Identifier: Apache-2.0
#include "agent/ledger/gap.h"

namespace pollgap {

const char* to_string(Cause cause) {
  switch (cause) {
    case Cause::preemption:
      return "preemption";
    case Cause::throttled:
      return "throttled";
    case Cause::stopped:
      return "stopped";
    case Cause::blocked:
      return "blocked";
    case Cause::hard_irq:
      return "hard_irq";
    case Cause::soft_irq:
      return "soft_irq";
    case Cause::nmi:
      return "nmi";
    case Cause::self_kernel:
      return "self_kernel";
    case Cause::control_verb:
      return "control_verb";
    case Cause::application:
      return "application";
    case Cause::poll_function:
      return "poll_function";
    case Cause::stolen:
      return "stolen";
    case Cause::late_completion:
      return "late_completion";
    case Cause::agent:
      return "agent";
    case Cause::unexplained:
      break;
  }
  return "unexplained";
}

const char* to_string(GapKind kind) {
  switch (kind) {
    case GapKind::in_poll:
      return "in_poll";
    case GapKind::between_polls:
      return "between_polls";
    case GapKind::late_completion:
      return "late_completion";
    case GapKind::unpolled_completion:
      return "unpolled_completion";
    case GapKind::stalled:
      break;
  }
  return "stalled";
}

const char* to_string(Confidence confidence) {
  switch (confidence) {
    case Confidence::high:
      return "high";
    case Confidence::medium:
      return "medium";
    case Confidence::low:
      break;
  }
  return "low";
}

}  // namespace pollgap
