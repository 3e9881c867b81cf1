// SPDX-License-Identifier: Apache-2.0
// Text from the target or the kernel, made safe to show: names of tasks and files are hostile input
// that may hold terminal escapes, line breaks or broken UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace pollgap {

// Valid UTF-8 on one line: control characters (C0, DEL, C1) and bytes that are no UTF-8 become
// "\xNN"; everything else stays.
std::string terminal_escaped(std::string_view text);

// As terminal_escaped(), and safe as HTML text or as a quoted attribute value.
std::string html_escaped(std::string_view text);

}  // namespace pollgap
