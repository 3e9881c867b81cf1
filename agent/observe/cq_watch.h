// SPDX-License-Identifier: Apache-2.0
// From looks at one CQ to silences of it. Pure: knows neither clock nor memory.
//
// Where the consumer index only grows, it tells whether something was consumed, whatever time lies
// between two looks; a late look only makes it less certain when. Where it wraps, a late look may
// not tell even that: then something is taken to have been consumed, so that no silence is made of
// what is not known to be one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "agent/observe/silence.h"
#include "probes/provider_queues.h"

namespace pollgap {

// A look happened between these two times.
struct LookTime {
  uint64_t begun_ns = 0;
  uint64_t ended_ns = 0;
};

class CqWatch {
 public:
  CqWatch(uint64_t cq, uint64_t threshold_ns) : cq_(cq), threshold_ns_(threshold_ns) {}

  // One look, later than those before it. Returns the silence that it found ended, if that may have
  // lasted for the threshold. `sends`: of the same send queues in the same order each time.
  std::optional<Silence> look(LookTime when, const CqReading& reading,
                              std::span<const SendIndices> sends);

  // A send queue that has had sends outstanding for half the threshold, of which it is not known
  // whether they ask for a completion: to be found out, and told by signaled().
  std::optional<size_t> unsure_of() const;
  void signaled(size_t send_queue, const std::optional<SignaledSends>& sends);

  // The silence as it is: it ends with the last look, and is open.
  std::optional<Silence> so_far() const;

  // From here on a completion may have lain ready that nobody has consumed; without one, when the
  // last look began.
  uint64_t served_until_ns() const { return ready_ ? ready_->after_ns : last_.begun_ns; }

  // Since the first look. At least, where is_exact() is not: more may have been between two looks.
  bool is_exact() const { return exact_; }
  uint64_t consumed() const { return consumed_; }
  uint64_t posted() const { return posted_; }
  // Stretches of the threshold or longer with nothing signaled outstanding, and nothing ready.
  uint64_t idle_ns() const { return idle_ns_; }

 private:
  enum class Asks { unknown, yes, no, untold };  // for a completion

  struct Sends {
    SendIndices latest;
    Window since;         // outstanding without a break
    uint32_t posted = 0;  // at the end of that window
    Asks asks = Asks::unknown;
    uint32_t signaled = 0;
  };

  static void restart(Sends& queue, const SendIndices& indices, const Window& since);
  static void follow(Sends& queue, const SendIndices& indices, const Window& window);
  void begin(const Window& window, uint32_t consumer_index, std::span<const SendIndices> sends);
  void go_on(LookTime when, const Window& window, const CqReading& reading,
             std::span<const SendIndices> sends);
  std::optional<Silence> silence(const Window& end, const Window& came);

  uint64_t cq_;
  uint64_t threshold_ns_;
  bool seen_ = false;
  LookTime last_{};
  uint32_t consumer_index_ = 0;
  Window begin_{};
  uint64_t absent_ns_ = 0;  // since then, or later, there was no entry ready
  std::optional<Window> ready_;
  std::optional<CompletionError> error_;
  std::optional<uint64_t> stamp_;  // of the completion that is ready
  std::vector<Sends> sends_;
  bool exact_ = true;
  uint64_t consumed_ = 0;
  uint64_t posted_ = 0;
  uint64_t idle_ns_ = 0;
};

}  // namespace pollgap
