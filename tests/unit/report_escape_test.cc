// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "agent/report/escape.h"

namespace pollgap {
namespace {

TEST(TerminalEscaped, KeepsTextAndShowsControlCharacters) {
  EXPECT_EQ(terminal_escaped("plain 1.2 µs, 日本"), "plain 1.2 µs, 日本");
  EXPECT_EQ(terminal_escaped("\x1b[2Jx\n\r\t\x7f"), "\\x1b[2Jx\\x0a\\x0d\\x09\\x7f");
  EXPECT_EQ(terminal_escaped("\xc2\x9b"
                             "31m"),
            "\\xc2\\x9b31m");  // C1 control sequence introducer
  EXPECT_EQ(terminal_escaped(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(TerminalEscaped, ShowsBytesThatAreNoUtf8) {
  EXPECT_EQ(terminal_escaped("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(terminal_escaped("\xc3"), "\\xc3");                    // cut short
  EXPECT_EQ(terminal_escaped("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(terminal_escaped("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(terminal_escaped("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(terminal_escaped("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
}

TEST(HtmlEscaped, LeavesNothingThatEndsTextOrAttribute) {
  EXPECT_EQ(html_escaped("<script>\"&'"), "&lt;script&gt;&quot;&amp;&#39;");
  EXPECT_EQ(html_escaped("\x1b<"), "\\x1b&lt;");
}

}  // namespace
}  // namespace pollgap
