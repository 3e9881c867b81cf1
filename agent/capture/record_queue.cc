// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/record_queue.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "bpf/evidence.h"
#include "pollgap_bpf.skel.h"

namespace pollgap {
namespace {

constexpr auto kPause = std::chrono::milliseconds(100);
constexpr size_t kChunkBytes = 1 << 20;
// What waits in memory at most. Beyond it the ring fills, and the kernel counts what is lost.
constexpr size_t kMostBytes = 256 << 20;

}  // namespace

Result<std::unique_ptr<RecordQueue>> RecordQueue::open(KernelPrograms& programs) {
  std::unique_ptr<RecordQueue> queue(new RecordQueue);
  const bpf_map* map = programs.object().maps.evidence;
  const auto deliver = [](void* context, void* data, size_t size) {
    return static_cast<RecordQueue*>(context)->keep({static_cast<const std::byte*>(data), size});
  };
  queue->ring_bytes_ = bpf_map__max_entries(map);
  queue->ring_.reset(ring_buffer__new(bpf_map__fd(map), deliver, queue.get(), nullptr));
  if (!queue->ring_) {
    return Error{ExitCode::kernel_lacks,
                 std::string("cannot map the ring of records: ") + std::strerror(errno)};
  }
  queue->thread_ = std::thread([raw = queue.get()] { raw->watch(); });
  return queue;
}

RecordQueue::~RecordQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void RecordQueue::watch() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kPause, [this] { return stop_; })) take();
}

// No more than the ring can hold: the kernel may write as fast as this reads.
void RecordQueue::take() {
  taken_ = 0;
  if (bytes_ < kMostBytes) ring_buffer__consume(ring_.get());
}

int RecordQueue::keep(std::span<const std::byte> record) {
  if (chunks_.empty() || chunks_.back().size() + record.size() > kChunkBytes) {
    chunks_.emplace_back();
  }
  chunks_.back().insert(chunks_.back().end(), record.begin(), record.end());
  bytes_ += record.size();
  taken_ += record.size();
  return taken_ >= ring_bytes_ ? -1 : 0;
}

bool RecordQueue::drain(const RecordSink& sink, size_t bytes) {
  std::unique_lock lock(mutex_);
  take();
  const bool all = bytes >= bytes_;
  size_t left = std::min(bytes, bytes_);
  while (left > 0) {
    const Chunk chunk = std::move(chunks_.front());
    chunks_.pop_front();
    bytes_ -= chunk.size();
    left -= std::min(left, chunk.size());
    lock.unlock();
    for (size_t at = 0; at < chunk.size();) {
      const auto& header = *reinterpret_cast<const ev_header*>(chunk.data() + at);
      sink(std::span(chunk).subspan(at, header.bytes));
      at += header.bytes;
    }
    lock.lock();
  }
  return all;
}

}  // namespace pollgap
