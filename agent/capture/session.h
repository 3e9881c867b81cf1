// SPDX-License-Identifier: Apache-2.0
// A capture session: from a PID to a stream of evidence that explains itself.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/capture/attach_options.h"
#include "probes/result.h"
#include "probes/sites.h"

namespace pollgap {

class CaptureSession {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;

  // Finds the poll functions, loads the BPF programs and attaches. Errors carry the exit code.
  static Result<std::unique_ptr<CaptureSession>> open(const AttachOptions& options);
  ~CaptureSession();

  // Delivers the records there are, each after the names it needs, in order; when there are none,
  // waits for `timeout_ms` or until the target is gone. An error ends the session: what was
  // delivered stands.
  Status drain(int timeout_ms, const Sink& sink);
  // The target has exited, or has become another program by exec.
  bool target_gone() const;
  // "exited", "called exec", or "" while it lives.
  const char* target_end() const;
  // Detaches; delivers the last records, the sums of the polls and the coverage. Call once.
  Status close(const Sink& sink);

  const Sites& sites() const;
  // Lines for the user since the last call: how polls are timed has changed.
  std::vector<std::string> take_announcements();

 private:
  struct Impl;
  explicit CaptureSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pollgap
