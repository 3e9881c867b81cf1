// SPDX-License-Identifier: Apache-2.0
// What a provider's file has to offer so that CQs and send queues of a live process can be looked
// at in its memory: which of them are readable, and what to read of each, look by look.
//
// The target is not trusted: whatever a look reads is compared with what was verified before, and a
// CQ that differs in any of it is not intact.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "probes/memory_map.h"
#include "probes/memory_reader.h"
#include "probes/sites.h"

namespace pollgap {

// ---- what looks tell ----

enum class NextCqe {
  unknown,  // the consumer index has moved since the look before: another entry was read
  absent,   // the adapter has not written it
  ready,
  error,  // ready, and it tells of an error
};

// What a completion says of the error that it tells of.
struct CompletionError {
  uint32_t status = 0;  // enum ibv_wc_status
  uint32_t vendor_error = 0;
  uint32_t qp_num = 0;
  uint64_t wr_id = 0;  // 0: not known

  bool operator==(const CompletionError&) const = default;
};

struct CqReading {
  bool intact = false;  // false: the rest means nothing
  // Completions consumed, from any number on. Of a provider whose index wraps at the ring's end it
  // lacks whole rounds that looks have missed.
  uint32_t consumer_index = 0;
  NextCqe next = NextCqe::unknown;
  CompletionError error{};  // with NextCqe::error
  // Since a look less than this apart no round can have been missed.
  uint64_t round_ns = UINT64_MAX;
  // Nothing has been consumed since the look before, however long ago that was.
  bool unmoved = false;
  // When the adapter made a completion, by its own clock (ticks from any time on, which only grow):
  // of the one that was next to be consumed at the look before, if it has come, consumed or not;
  std::optional<uint64_t> next_stamp{};
  // and of any one that had not come at the look before, and has now.
  std::optional<uint64_t> new_stamp{};
};

// The indices of a send queue: work requests posted, and those known to be completed (by the
// completion of a later one, too), from any number on.
struct SendIndices {
  uint32_t head = 0;
  uint32_t tail = 0;
  // What is outstanding now was so at the look before, but for what the indices have moved by.
  bool exact = true;

  uint32_t outstanding() const { return head - tail; }
};

// The sends among those outstanding that ask for a completion.
struct SignaledSends {
  uint32_t count = 0;
  uint32_t oldest = 0;  // its place among the outstanding ones, 0 the oldest; without one: 0
};

// The looks at one CQ and at the send queues that complete to it.
class CqLooks {
 public:
  CqLooks() = default;
  virtual ~CqLooks() = default;
  CqLooks(const CqLooks&) = delete;
  CqLooks& operator=(const CqLooks&) = delete;

  // What to read, in that order, into memory of this object.
  virtual std::vector<MemoryPiece> pieces() = 0;
  // Before a look: sets the addresses of those that depend on the look before.
  virtual void aim(std::span<MemoryPiece> pieces) const = 0;
  // After it.
  virtual void judge(std::span<const MemoryPiece> pieces) = 0;

  const CqReading& reading() const { return reading_; }
  // By number of the send queue; {0, 0} for one that cannot be read or has impossible indices.
  const std::vector<SendIndices>& sends() const { return sends_; }

  // Which of that send queue's outstanding requests ask for a completion. Reads the requests
  // themselves: not for every look. nullopt: that cannot be told.
  virtual std::optional<SignaledSends> signaled(MemoryReader& memory, size_t send_queue) const = 0;

 protected:
  CqReading reading_;
  std::vector<SendIndices> sends_;
};

// ---- what can be looked at ----

// What of a CQ stays as it is until it is resized or destroyed.
struct CqRing {
  uint64_t cq = 0;       // the ibv_cq
  uint64_t context = 0;  // its first word
  uint64_t ring = 0;     // the first entry
  uint32_t entries = 0;  // a power of two
};

// What of a QP's send queue does while the QP lives.
struct SendRing {
  uint64_t qp = 0;  // the ibv_qp
  uint32_t qp_num = 0;
  uint64_t ring = 0;
};

struct ReadableCq;

// How a provider reads a CQ and its send queues.
class ProviderQueues {
 public:
  ProviderQueues() = default;
  virtual ~ProviderQueues() = default;
  ProviderQueues(const ProviderQueues&) = delete;
  ProviderQueues& operator=(const ProviderQueues&) = delete;

  virtual std::unique_ptr<CqLooks> look() const = 0;
  // The CQ `now`, as its ibv_cq has it, if it can be read as this was; nullopt: not.
  virtual std::optional<ReadableCq> again(MemoryReader& memory, const MemoryMap& map,
                                          const CqInfo& now) const = 0;
};

struct ReadableCq {
  CqRing ring;
  const char* layout = "";                       // "mlx5, rdma-core 35 to 63"
  std::vector<SendRing> sends;                   // whose completions come to it
  size_t unreadable_sends = 0;                   // other QPs whose completions do
  std::shared_ptr<const ProviderQueues> queues;  // never null
};

struct UnreadableCq {
  uint64_t cq = 0;
  std::string reason;
};

struct ReadableQueues {
  std::vector<ReadableCq> cqs;
  std::vector<UnreadableCq> refused;
};

// All CQs and QPs that a process has of one provider.
struct ProviderObjects {
  std::vector<CqInfo> cqs;
  std::vector<QpInfo> qps;
};

}  // namespace pollgap
