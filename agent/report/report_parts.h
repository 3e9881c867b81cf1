// SPDX-License-Identifier: Apache-2.0
// A report's text taken apart, so that its gaps can be parsed by themselves: one after the other
// without a tree of all of them in memory, and side by side.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pollgap {

struct ReportParts {
  std::string head;                    // the document with an empty array in the place of its gaps
  std::vector<std::string_view> gaps;  // texts of the elements of top-level member `gaps`
};

// Looks at brackets and strings only: a well-formed document comes apart right, and of one that is
// not at least one part is not well-formed. The views are into `text`.
ReportParts split_report(std::string_view text);

}  // namespace pollgap
