// SPDX-License-Identifier: Apache-2.0
#include "probes/queue_reader.h"

namespace pollgap {

size_t QueueReader::add(const ReadableCq& cq) {
  std::unique_ptr<CqLooks> looks = cq.queues->look();
  const std::vector<MemoryPiece> pieces = looks->pieces();
  cqs_.push_back({std::move(looks), pieces_.size(), pieces.size()});
  pieces_.insert(pieces_.end(), pieces.begin(), pieces.end());
  return cqs_.size() - 1;
}

void QueueReader::read() {
  for (const Cq& cq : cqs_) cq.looks->aim(pieces_of(cq));
  memory_->read_pieces(pieces_);
  for (const Cq& cq : cqs_) cq.looks->judge(pieces_of(cq));
}

}  // namespace pollgap
