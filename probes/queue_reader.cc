// SPDX-License-Identifier: Apache-2.0
#include "probes/queue_reader.h"

#include <infiniband/verbs.h>

#include <cstring>
#include <optional>

namespace pollgap {
namespace {

// Pieces of one CQ, in the order they are read, after those of its send queues: what the poll
// function writes last is read first. A send that is no longer outstanding has its completion
// consumed, and an entry that is ready has not been.
enum Piece : size_t { object_piece, ring_piece, own_piece, tail_piece, cq_pieces };

// struct mlx5_cqe64 and its opcodes, <infiniband/mlx5dv.h>.
constexpr size_t opcode_and_owner = 15;  // in the last 16 bytes of an entry
constexpr unsigned requester_error = 13, responder_error = 14, invalid = 15;

template <typename T>
T value_at(std::span<const std::byte> bytes, size_t offset) {
  T value;
  memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// As software owns an entry: providers/mlx5/cq.c, get_sw_cqe().
NextCqe next_cqe(uint8_t opcode_owner, uint32_t index, uint32_t entries) {
  const unsigned opcode = opcode_owner >> 4;
  const bool owner = (opcode_owner & 1) != 0;
  if (opcode == invalid || owner != ((index & entries) != 0)) return NextCqe::absent;
  return opcode == requester_error || opcode == responder_error ? NextCqe::error : NextCqe::ready;
}

}  // namespace

QueueReader::QueueReader(std::unique_ptr<MemoryReader> memory) : memory_(std::move(memory)) {}

uint64_t QueueReader::tail_address(const Cq& cq) const {
  const uint64_t place = cq.read_index & (cq.ring.entries - 1);
  return cq.ring.ring + (place + 1) * cq.ring.entry_bytes - tail_bytes;
}

size_t QueueReader::add(const CqRing& ring, const CqLayout& layout,
                        const std::vector<SendQueue>& sends) {
  Cq cq{.ring = ring,
        .layout = layout,
        .queues = sends,
        .reading = {},
        .indices = std::vector<SendIndices>(sends.size()),
        .bytes = std::make_unique<Bytes>(),
        .read_indices = std::make_unique<SendIndices[]>(sends.size()),
        .first_piece = pieces_.size()};
  Bytes& bytes = *cq.bytes;
  const size_t own = layout.entry_bytes + sizeof(uint32_t) - layout.active_buffer;
  for (size_t i = 0; i < sends.size(); ++i)
    pieces_.push_back(
        {sends[i].indices, std::as_writable_bytes(std::span(&cq.read_indices[i], 1)), false});
  pieces_.push_back({ring.cq, bytes.object, false});
  pieces_.push_back({ring.buffer, std::as_writable_bytes(std::span(&bytes.ring, 1)), false});
  pieces_.push_back({ring.cq + layout.active_buffer, std::span(bytes.own).first(own), false});
  pieces_.push_back({tail_address(cq), bytes.tail, false});
  cqs_.push_back(std::move(cq));
  return cqs_.size() - 1;
}

void QueueReader::read() {
  for (const Cq& cq : cqs_)
    pieces_[cq.first_piece + cq.queues.size() + tail_piece].address = tail_address(cq);
  memory_->read_pieces(pieces_);
  for (Cq& cq : cqs_) judge(cq);
}

bool QueueReader::is_as_verified(const Cq& cq) const {
  for (size_t i = 0; i < cq_pieces; ++i)
    if (!pieces_[cq.first_piece + cq.queues.size() + i].complete) return false;
  const Bytes& bytes = *cq.bytes;
  const auto own = [&](uint32_t offset) { return offset - cq.layout.active_buffer; };
  return value_at<uint64_t>(bytes.object, offsetof(ibv_cq, context)) == cq.ring.context &&
         value_at<uint32_t>(bytes.object, offsetof(ibv_cq, cqe)) == cq.ring.entries - 1 &&
         value_at<uint64_t>(bytes.own, 0) == cq.ring.buffer && bytes.ring == cq.ring.ring &&
         value_at<uint64_t>(bytes.own, own(cq.layout.doorbell_record)) == cq.ring.doorbell &&
         value_at<uint32_t>(bytes.own, own(cq.layout.entry_bytes)) == cq.ring.entry_bytes;
}

void QueueReader::judge(Cq& cq) {
  cq.reading = {};
  if (!is_as_verified(cq)) return;
  const uint32_t index =
      value_at<uint32_t>(cq.bytes->own, cq.layout.consumer_index - cq.layout.active_buffer);
  cq.reading.intact = true;
  cq.reading.consumer_index = index;
  if (cq.seen && index == cq.read_index)
    cq.reading.next =
        next_cqe(static_cast<uint8_t>(cq.bytes->tail[opcode_and_owner]), index, cq.ring.entries);
  cq.read_index = index;
  cq.seen = true;
  for (size_t i = 0; i < cq.queues.size(); ++i) {
    const SendIndices& read = cq.read_indices[i];
    const bool possible =
        pieces_[cq.first_piece + i].complete && read.outstanding() <= cq.queues[i].most_posted;
    cq.indices[i] = possible ? read : SendIndices{};
  }
}

std::optional<SignaledSends> QueueReader::signaled(size_t number, size_t send_queue) {
  return signaled_sends(*memory_, cqs_[number].queues[send_queue]);
}

}  // namespace pollgap
