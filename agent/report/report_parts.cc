// SPDX-License-Identifier: Apache-2.0
#include "agent/report/report_parts.h"

#include <cstdint>
#include <utility>

namespace pollgap {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_(text) {}

  ReportParts split() {
    for (at_ = 0; at_ < text_.size(); ++at_) step();
    parts_.head.append(text_.substr(head_begin_));
    return std::move(parts_);
  }

 private:
  void step() {
    switch (text_[at_]) {
      case '"':
        string();
        break;
      case ':':
        if (depth_ == 1) key_ = last_string_;
        break;
      case '{':
      case '[':
        if (depth_++ == 1) open_member();
        break;
      case '}':
      case ']':
        if (--depth_ == 1) close_member();
        break;
      case ',':
        if (depth_ == 2 && in_gaps_) element();
        break;
      default:
        break;
    }
  }

  // Leaves at_ on the closing quote.
  void string() {
    const size_t begin = at_ + 1;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_)
      if (text_[at_] == '\\') ++at_;
    if (depth_ == 1 && at_ < text_.size()) last_string_ = text_.substr(begin, at_ - begin);
  }

  void open_member() {
    in_gaps_ = text_[at_] == '[' && key_ == "gaps";
    if (!in_gaps_) return;
    parts_.head.append(text_.substr(head_begin_, at_ + 1 - head_begin_));
    head_begin_ = element_begin_ = at_ + 1;
    array_is_empty_ = true;
  }

  void close_member() {
    if (!in_gaps_) return;
    const bool nothing = trimmed(text_.substr(element_begin_, at_ - element_begin_)).empty();
    if (!array_is_empty_ || !nothing) element();
    head_begin_ = at_;
    in_gaps_ = false;
  }

  void element() {
    parts_.gaps.push_back(trimmed(text_.substr(element_begin_, at_ - element_begin_)));
    element_begin_ = at_ + 1;
    array_is_empty_ = false;
  }

  std::string_view text_;
  ReportParts parts_;
  size_t at_ = 0;
  int64_t depth_ = 0;
  std::string_view last_string_;  // at depth 1
  std::string_view key_;
  bool in_gaps_ = false;
  bool array_is_empty_ = true;
  size_t element_begin_ = 0;
  size_t head_begin_ = 0;  // of the text that is not in parts_.head yet
};

}  // namespace

ReportParts split_report(std::string_view text) { return Splitter(text).split(); }

}  // namespace pollgap
