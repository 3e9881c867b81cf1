// SPDX-License-Identifier: Apache-2.0
#include "probes/rxe_queues.h"

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace pollgap {
namespace {

// A ring takes at most so many entries: rxe's limits of CQs and work requests are below.
constexpr uint32_t most_entries = 1 << 22;
// Soft RoCE does not put completions into one CQ faster: each is a packet's way through the
// kernel's network stack, and all of them pass one lock.
constexpr uint64_t least_ns_per_completion = 500;

// ---- a ring ----

// The beginning of struct rxe_queue_buf.
struct Header {
  uint32_t log2_entry_bytes, index_mask, reserved[30], producer_index;
};
static_assert(sizeof(Header) ==
              offsetof(rxe_queue_buf, producer_index) + sizeof(rxe_queue_buf::producer_index));
constexpr uint64_t consumer_index = offsetof(rxe_queue_buf, consumer_index);
constexpr uint64_t first_entry = offsetof(rxe_queue_buf, data);

// What of it stays as it is while it is there.
struct Ring {
  uint64_t pointer = 0;  // where the object of the CQ or QP has the next
  uint64_t queue = 0;    // the rxe_queue_buf
  uint32_t log2_entry_bytes = 0;
  uint32_t index_mask = 0;

  uint64_t entry(uint32_t index) const {
    return queue + first_entry + (uint64_t{index & index_mask} << log2_entry_bytes);
  }
};

// Providers keep struct mminfo, which the kernel returns, before the pointer that mmap() does.
struct RingPointer {
  mminfo info;
  uint64_t queue;
};
static_assert(sizeof(RingPointer) == 24);

constexpr size_t first_place = 128, last_place = 768;  // of a RingPointer in a CQ or QP
constexpr size_t from_receives_to_sends = 40;          // both in a QP: struct rxe_wq lies between

bool is_ring_pointer(const MemoryMap& map, const RingPointer& candidate) {
  const Mapping* mapping = map.find(candidate.queue);
  return mapping != nullptr && mapping->start == candidate.queue && mapping->shared &&
         mapping->readable && mapping->path.find("/uverbs") != std::string::npos &&
         mapping->offset == candidate.info.offset && candidate.info.size >= first_entry &&
         candidate.info.size <= mapping->end - mapping->start;
}

// Where in the object they are, at most two.
std::vector<size_t> ring_pointers(MemoryReader& memory, const MemoryMap& map, uint64_t object) {
  std::array<std::byte, last_place + sizeof(RingPointer)> bytes;
  const size_t size = memory.read(object, bytes);
  std::vector<size_t> found;
  for (size_t at = first_place; at + sizeof(RingPointer) <= size && found.size() < 2; at += 8) {
    RingPointer candidate;
    memcpy(&candidate, bytes.data() + at, sizeof(candidate));
    if (is_ring_pointer(map, candidate)) found.push_back(at);
  }
  return found;
}

// The ring whose RingPointer is there, if it has entries of that size and fits its mapping.
std::optional<Ring> ring_at(MemoryReader& memory, uint64_t address, size_t least_entry_bytes) {
  const auto pointer = memory.load<RingPointer>(address);
  const auto header = pointer ? memory.load<Header>(pointer->queue) : std::nullopt;
  const auto consumer =
      pointer ? memory.load<uint32_t>(pointer->queue + consumer_index) : std::nullopt;
  if (!header || !consumer) return std::nullopt;
  const uint64_t entries = uint64_t{header->index_mask} + 1;
  if (!std::has_single_bit(entries) || entries > most_entries || header->log2_entry_bytes > 16 ||
      (size_t{1} << header->log2_entry_bytes) < least_entry_bytes ||
      first_entry + (entries << header->log2_entry_bytes) > pointer->info.size ||
      header->producer_index > header->index_mask || *consumer > header->index_mask) {
    return std::nullopt;
  }
  return Ring{address + offsetof(RingPointer, queue), pointer->queue, header->log2_entry_bytes,
              header->index_mask};
}

std::optional<Ring> find_cq(MemoryReader& memory, const MemoryMap& map, const CqInfo& cq) {
  const std::vector<size_t> places = ring_pointers(memory, map, cq.address);
  if (places.empty()) return std::nullopt;
  const auto ring = ring_at(memory, cq.address + places[0], sizeof(ib_uverbs_wc));
  return ring && static_cast<int64_t>(ring->index_mask) == cq.cqe ? ring : std::nullopt;
}

// Behind the ring of receives, which a QP with a shared receive queue has not.
std::optional<Ring> find_send_queue(MemoryReader& memory, const MemoryMap& map, const QpInfo& qp) {
  const auto shared = memory.load<uint64_t>(qp.address + offsetof(ibv_qp, srq));
  const std::vector<size_t> places = ring_pointers(memory, map, qp.address);
  if (!shared || places.empty()) return std::nullopt;
  size_t sends = places[0];
  if (*shared == 0) {
    if (places.size() < 2 || places[1] != places[0] + from_receives_to_sends) return std::nullopt;
    sends = places[1];
  }
  return ring_at(memory, qp.address + sends, offsetof(rxe_send_wqe, dma));
}

// ---- looks ----

// What each look reads of a ring. The consumer index first: what the producer has added since then
// is no more than what lies there now.
class RingLooks {
 public:
  explicit RingLooks(const Ring& ring) : ring_(ring) {}

  void add_pieces(std::vector<MemoryPiece>& pieces) {
    const auto bytes = [](auto& value) { return std::as_writable_bytes(std::span(&value, 1)); };
    pieces.push_back({ring_.queue + consumer_index, bytes(consumer_), false});
    pieces.push_back({ring_.queue, bytes(header_), false});
  }
  static constexpr size_t piece_count = 2;

  // Returns whether the ring is as it was verified. If not, the rest means nothing.
  bool judge(std::span<const MemoryPiece> read) {
    const bool intact = std::ranges::all_of(read.first(piece_count), &MemoryPiece::complete) &&
                        header_.log2_entry_bytes == ring_.log2_entry_bytes &&
                        header_.index_mask == ring_.index_mask &&
                        header_.producer_index <= ring_.index_mask && consumer_ <= ring_.index_mask;
    moved_ = !seen_ || !intact || consumer_ != last_consumer_;
    if (intact && seen_) completed_ += (consumer_ - last_consumer_) & ring_.index_mask;
    seen_ = intact;
    if (intact) last_consumer_ = consumer_;
    return intact;
  }

  // Whether the consumer index is another than at the look before.
  bool moved() const { return moved_; }
  uint32_t entries() const { return ring_.index_mask + 1; }
  // Entries that the consumer has taken, without the whole rounds that looks have missed.
  uint32_t completed() const { return completed_; }
  void add_round() { completed_ += entries(); }
  uint32_t consumer() const { return last_consumer_; }
  // Entries that it has not.
  uint32_t waiting() const { return (header_.producer_index - consumer_) & ring_.index_mask; }

  // As of the latest look. The producer leaves the entry before the consumer's free while the ring
  // is full: so the last one taken stays as it is until the consumer moves on.
  uint64_t last_taken() const { return ring_.entry(last_consumer_ - 1); }
  uint64_t next() const { return ring_.entry(last_consumer_); }
  const Ring& ring() const { return ring_; }

 private:
  Ring ring_;
  uint32_t consumer_ = 0;
  Header header_{};
  uint32_t last_consumer_ = 0;
  uint32_t completed_ = 0;
  bool seen_ = false;
  bool moved_ = true;
};

// The entry of a ring that the consumer took last, from look to look.
template <typename Entry>
class LastTaken {
 public:
  MemoryPiece piece(uint64_t address) {
    return {address, std::as_writable_bytes(std::span(&read_, 1)), false};
  }
  // After a look. same(): it is what it was at the look before; changed(): it is not, though the
  // consumer index is: a whole round has passed. Neither, where the look before knew none.
  void judge(const RingLooks& ring, const MemoryPiece& piece) {
    const bool readable = !ring.moved() && piece.complete;
    const bool comparable = readable && known_;
    const bool equal = std::ranges::equal(std::as_bytes(std::span(&read_, 1)),
                                          std::as_bytes(std::span(&before_, 1)));
    same_ = comparable && equal;
    changed_ = comparable && !equal;
    known_ = readable;
    before_ = read_;
  }
  bool same() const { return same_; }
  bool changed() const { return changed_; }
  const Entry& entry() const { return read_; }

 private:
  Entry read_{};
  Entry before_{};
  bool known_ = false;
  bool same_ = false;
  bool changed_ = false;
};

// The fixed part of a send request, with what the kernel has added.
struct Request {
  rxe_send_wr request;
  uint32_t status, state;
  uint64_t iova;
  uint32_t mask, first_psn, last_psn, ack_length, ssn, has_rd_atomic;
};
static_assert(sizeof(Request) == offsetof(rxe_send_wqe, dma));
static_assert(offsetof(Request, first_psn) == offsetof(rxe_send_wqe, first_psn));

// Whether the kernel gave it a packet number when it was sent (24 bits, each packet of a QP has the
// next). Requests that send nothing, as to bind a memory window, have none.
bool is_numbered(const Request& request) {
  constexpr uint32_t packet_numbers = 1 << 24;
  switch (request.request.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_SEND_WITH_INV:
      return request.first_psn < packet_numbers && request.last_psn < packet_numbers;
    default:
      return false;
  }
}

// What of a QP's sends stays as it is while the QP lives.
struct SendQueue {
  QpInfo qp;
  Ring ring;
};

// The kernel advances a send queue's consumer index when a request is completed. The last one
// completed carries a packet number, which no later one has: so that the ring is where it was is
// told from a whole round by it.
class SendLooks {
 public:
  explicit SendLooks(const Ring& ring) : ring_(ring) {}

  void add_pieces(std::vector<MemoryPiece>& pieces) {
    ring_.add_pieces(pieces);
    pieces.push_back(last_.piece(ring_.last_taken()));
  }
  static constexpr size_t piece_count = RingLooks::piece_count + 1;
  void aim(std::span<MemoryPiece> read) const {
    read[RingLooks::piece_count].address = ring_.last_taken();
  }

  SendIndices judge(std::span<const MemoryPiece> read) {
    const bool intact = ring_.judge(read);
    last_.judge(ring_, read[RingLooks::piece_count]);
    unmoved_ = intact && last_.same() && is_numbered(last_.entry());
    if (!intact) return {};
    return {ring_.completed() + ring_.waiting(), ring_.completed(), unmoved_ || ring_.moved()};
  }
  // Surely nothing was completed since the look before.
  bool unmoved() const { return unmoved_; }

 private:
  RingLooks ring_;
  LastTaken<Request> last_;
  bool unmoved_ = false;
};

// What says that nothing was consumed of a CQ whose consumer index is what it was? An entry has no
// number. But where the last one consumed is a send's, and that send queue has completed nothing
// since the look before, no entry that came in since can be the last consumed: had a round been
// consumed, the last of it would be one that came in since, because a ring holds less than a round.
// (A completion that the kernel was about to add at that look is missed by this, if the CQ has
// other producers that add the rest of a round.) Else only the time does: see round_ns.
class RxeLooks : public CqLooks {
 public:
  RxeLooks(const CqRing& cq, const Ring& ring, std::vector<SendQueue> queues)
      : cq_(cq),
        queues_(std::move(queues)),
        ring_(ring),
        object_(ring.pointer + sizeof(ring.queue) - cq.cq) {
    for (const SendQueue& queue : queues_) send_looks_.emplace_back(queue.ring);
    sends_.resize(queues_.size());
  }

  // The kernel completes a request before it adds the entry that says so: read in that order, too.
  std::vector<MemoryPiece> pieces() override {
    std::vector<MemoryPiece> pieces;
    for (SendLooks& looks : send_looks_) looks.add_pieces(pieces);
    pieces.push_back({cq_.cq, object_, false});
    ring_.add_pieces(pieces);
    pieces.push_back(last_.piece(ring_.last_taken()));
    pieces.push_back({ring_.next(), std::as_writable_bytes(std::span(&next_, 1)), false});
    return pieces;
  }

  void aim(std::span<MemoryPiece> pieces) const override {
    for (size_t i = 0; i < send_looks_.size(); ++i)
      send_looks_[i].aim(pieces.subspan(i * SendLooks::piece_count));
    pieces[pieces.size() - 2].address = ring_.last_taken();
    pieces[pieces.size() - 1].address = ring_.next();
  }

  void judge(std::span<const MemoryPiece> pieces) override {
    for (size_t i = 0; i < send_looks_.size(); ++i)
      sends_[i] = send_looks_[i].judge(pieces.subspan(i * SendLooks::piece_count));
    const auto own = pieces.subspan(send_looks_.size() * SendLooks::piece_count);
    reading_ = {};
    reading_.intact = is_same_cq(own[0]) && ring_.judge(own.subspan(1));
    if (!reading_.intact) return;
    last_.judge(ring_, own[own.size() - 2]);
    if (last_.changed()) ring_.add_round();
    reading_.consumer_index = ring_.completed();
    reading_.next = next(own[own.size() - 1]);
    if (reading_.next == NextCqe::error)
      reading_.error = {next_.status, next_.vendor_err, next_.qp_num, next_.wr_id};
    reading_.round_ns = ring_.entries() * least_ns_per_completion;
    reading_.unmoved = last_.same() && is_last_of_unmoved_sends(last_.entry());
  }

  std::optional<SignaledSends> signaled(MemoryReader& memory, size_t send_queue) const override;

 private:
  bool is_same_cq(const MemoryPiece& object) const {
    uint64_t context = 0, queue = 0;
    uint32_t cqe = 0;
    memcpy(&context, object_.data() + offsetof(ibv_cq, context), sizeof(context));
    memcpy(&cqe, object_.data() + offsetof(ibv_cq, cqe), sizeof(cqe));
    memcpy(&queue, object_.data() + object_.size() - sizeof(queue), sizeof(queue));
    return object.complete && context == cq_.context && cqe == cq_.entries - 1 &&
           queue == ring_.ring().queue;
  }

  NextCqe next(const MemoryPiece& entry) const {
    if (ring_.waiting() == 0) return NextCqe::absent;
    if (ring_.moved() || last_.changed() || !entry.complete) return NextCqe::unknown;
    return next_.status == IBV_WC_SUCCESS ? NextCqe::ready : NextCqe::error;
  }

  bool is_last_of_unmoved_sends(const ib_uverbs_wc& entry) const {
    if (entry.status != IBV_WC_SUCCESS || (entry.opcode & IBV_WC_RECV) != 0) return false;
    for (size_t i = 0; i < queues_.size(); ++i)
      if (queues_[i].qp.qp_num == entry.qp_num) return send_looks_[i].unmoved();
    return false;
  }

  const CqRing cq_;
  const std::vector<SendQueue> queues_;
  std::vector<SendLooks> send_looks_;
  RingLooks ring_;
  LastTaken<ib_uverbs_wc> last_;
  // What is read.
  std::vector<std::byte> object_;  // from the ibv_cq to the pointer to its ring
  ib_uverbs_wc next_{};
};

// Of a QP whose sends all ask for one (ibv_qp_init_attr.sq_sig_all), which user space does not
// keep, none need say so: where none does, that cannot be told.
std::optional<SignaledSends> RxeLooks::signaled(MemoryReader& memory, size_t send_queue) const {
  constexpr uint32_t at_once = 64, most = 1024;
  struct Flags {
    uint32_t opcode, send_flags;
  };
  static_assert(offsetof(rxe_send_wr, opcode) + offsetof(Flags, send_flags) ==
                offsetof(rxe_send_wr, send_flags));
  const SendQueue& queue = queues_[send_queue];
  RingLooks ring(queue.ring);
  std::vector<MemoryPiece> head;
  ring.add_pieces(head);
  memory.read_pieces(head);
  const auto context = memory.load<uint64_t>(queue.qp.address + offsetof(ibv_qp, context));
  const auto pointer = memory.load<uint64_t>(queue.ring.pointer);
  if (context != queue.qp.context || pointer != queue.ring.queue || !ring.judge(head))
    return std::nullopt;
  const uint32_t outstanding = std::min(ring.waiting(), most);
  SignaledSends sends;
  for (uint32_t first = 0; first < outstanding; first += at_once) {
    std::array<Flags, at_once> flags;
    std::array<MemoryPiece, at_once> pieces;
    const auto batch = std::span(pieces).first(std::min(at_once, outstanding - first));
    for (uint32_t i = 0; i < batch.size(); ++i)
      batch[i] = {queue.ring.entry(ring.consumer() + first + i) + offsetof(rxe_send_wr, opcode),
                  std::as_writable_bytes(std::span(&flags[i], 1)), false};
    memory.read_pieces(batch);
    for (uint32_t i = 0; i < batch.size(); ++i) {
      if (!batch[i].complete) return std::nullopt;
      if ((flags[i].send_flags & IBV_SEND_SIGNALED) == 0) continue;
      if (sends.count++ == 0) sends.oldest = first + i;
    }
  }
  if (sends.count == 0 && outstanding != 0) return std::nullopt;
  return sends;
}

// ---- what can be looked at ----

class RxeQueues : public ProviderQueues {
 public:
  RxeQueues(const CqRing& cq, const Ring& ring, std::vector<SendQueue> sends,
            size_t unreadable_sends)
      : cq_(cq), ring_(ring), sends_(std::move(sends)), unreadable_sends_(unreadable_sends) {}

  std::unique_ptr<CqLooks> look() const override {
    return std::make_unique<RxeLooks>(cq_, ring_, sends_);
  }
  std::optional<ReadableCq> again(MemoryReader& memory, const MemoryMap& map,
                                  const CqInfo& now) const override;

 private:
  const CqRing cq_;
  const Ring ring_;
  const std::vector<SendQueue> sends_;
  const size_t unreadable_sends_;
};

ReadableCq readable(const CqInfo& cq, const Ring& ring, const std::vector<SendQueue>& sends,
                    size_t unreadable_sends) {
  const CqRing identity{cq.address, cq.context, ring.entry(0), ring.index_mask + 1};
  ReadableCq found{.ring = identity,
                   .layout = "rxe",
                   .sends = {},
                   .unreadable_sends = unreadable_sends,
                   .queues = std::make_shared<RxeQueues>(identity, ring, sends, unreadable_sends)};
  for (const SendQueue& queue : sends)
    found.sends.push_back({queue.qp.address, queue.qp.qp_num, queue.ring.entry(0)});
  return found;
}

std::optional<ReadableCq> RxeQueues::again(MemoryReader& memory, const MemoryMap& map,
                                           const CqInfo& now) const {
  const auto ring = find_cq(memory, map, now);
  if (!ring) return std::nullopt;
  return readable(now, *ring, sends_, unreadable_sends_);
}

}  // namespace

void find_rxe_queues(MemoryReader& memory, const MemoryMap& map, const ProviderObjects& objects,
                     ReadableQueues& found) {
  for (const CqInfo& cq : objects.cqs) {
    const auto ring = find_cq(memory, map, cq);
    if (!ring) {
      found.refused.push_back({cq.address,
                               "its memory has no pointer to a ring of rxe's with as many entries "
                               "as it has"});
      continue;
    }
    std::vector<SendQueue> sends;
    size_t unreadable = 0;
    for (const QpInfo& qp : objects.qps) {
      if (qp.send_cq != cq.address) continue;
      if (const auto queue = find_send_queue(memory, map, qp)) {
        sends.push_back({qp, *queue});
      } else {
        ++unreadable;
      }
    }
    found.cqs.push_back(readable(cq, *ring, sends, unreadable));
  }
}

}  // namespace pollgap
