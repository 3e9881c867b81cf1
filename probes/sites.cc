// SPDX-License-Identifier: Apache-2.0
#include "probes/sites.h"

namespace pollgap {

const char* to_string(SiteRole role) {
  switch (role) {
    case SiteRole::poll_cq:
      return "poll_cq";
    case SiteRole::start_poll:
      return "start_poll";
    case SiteRole::next_poll:
      return "next_poll";
    case SiteRole::end_poll:
      return "end_poll";
    case SiteRole::post_send:
      return "post_send";
    case SiteRole::verb:
      return "verb";
    case SiteRole::user:
      return "user";
    case SiteRole::get_cq_event:
      return "get_cq_event";
    case SiteRole::open_hook:
      return "open_hook";
  }
  return "unknown";
}

}  // namespace pollgap
