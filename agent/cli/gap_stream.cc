// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/gap_stream.h"

#include <cstdio>
#include <cstring>

#include "agent/cli/command.h"
#include "agent/report/jsonl.h"
#include "bpf/evidence.h"

namespace pollgap {
namespace {

// The session's threshold, if the record is a session's that has one.
CorrelatorOptions options_from(std::span<const std::byte> record) {
  CorrelatorOptions options;
  ev_text text{};
  if (record.size() < sizeof(text)) return options;
  std::memcpy(&text, record.data(), sizeof(text));
  if (text.header.kind != EV_SESSION || text.text_bytes > record.size() - sizeof(text))
    return options;
  const std::string json(reinterpret_cast<const char*>(record.data()) + sizeof(text),
                         text.text_bytes);
  const SessionInfo session = parse_session_info(json);
  const auto threshold = session.options.find("threshold_ns");
  if (threshold != session.options.end() && threshold->is_number_unsigned())
    options.threshold_ns = threshold->get<uint64_t>();
  return options;
}

}  // namespace

void GapStream::accept(std::span<const std::byte> record) {
  if (!correlator_) correlator_.emplace(options_from(record));
  gaps_.clear();
  correlator_->accept(record, gaps_);
  for (const Gap& gap : gaps_) show(builder_.add(gap, correlator_->facts()));
}

void GapStream::show(const ReportedGap& reported) {
  if (format_ == OutputFormat::jsonl) {
    print(gap_jsonl(reported) + "\n");
  } else {
    if (!titles_shown_) print(gap_line_titles(style_) + "\n");
    titles_shown_ = true;
    print(gap_line(reported, style_) + "\n");
  }
  std::fflush(stdout);
}

void GapStream::finish(const std::vector<std::string>& notes) {
  if (!correlator_) correlator_.emplace(CorrelatorOptions());
  // A capture that was cut off has no end mark: gaps that still wait for evidence are told as they
  // are.
  gaps_.clear();
  correlator_->finish(gaps_);
  for (const Gap& gap : gaps_) show(builder_.add(gap, correlator_->facts()));
  head_ = builder_.head(correlator_->facts(), notes);
  if (format_ == OutputFormat::jsonl)
    print(summary_jsonl(head_) + "\n");
  else
    print((titles_shown_ ? "\n" : "") + summary_text(head_, style_));
}

Status GapStream::write_report(AtomicFile& file) const {
  builder_.write(head_, [&file](std::string_view bytes) { file.write(bytes); });
  return file.commit();
}

}  // namespace pollgap
