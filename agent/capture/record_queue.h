// SPDX-License-Identifier: Apache-2.0
// Takes the kernel's records out of their ring in time, whatever else the agent is busy with.
//
// Where the tasks of a core do nothing but switch, the ring holds a second of them, or less. To
// read the symbols of a large program, or to write to a slow disk, takes longer. So a thread of its
// own moves the records into memory, where they wait until they are drained.
#pragma once

#include <bpf/libbpf.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "agent/capture/kernel_programs.h"

namespace pollgap {

using RecordSink = std::function<void(std::span<const std::byte>)>;

class RecordQueue {
 public:
  // `programs` must outlive the queue. Errors: kernel_lacks.
  static Result<std::unique_ptr<RecordQueue>> open(KernelPrograms& programs);
  ~RecordQueue();
  RecordQueue(const RecordQueue&) = delete;
  RecordQueue& operator=(const RecordQueue&) = delete;

  // Hands the records that the kernel has written so far to `sink`, in the order in which it
  // reserved them: about that many bytes of them. Returns false where that is not all.
  // By one thread.
  bool drain(const RecordSink& sink, size_t bytes = SIZE_MAX);

 private:
  RecordQueue() = default;
  void watch();
  void take();  // what the ring holds; with mutex_ held
  int keep(std::span<const std::byte> record);

  struct RingCloser {
    void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
  };
  using Chunk = std::vector<std::byte>;  // whole records, one after the other

  std::mutex mutex_;
  std::condition_variable wake_;
  std::unique_ptr<ring_buffer, RingCloser> ring_;
  size_t ring_bytes_ = 0;
  std::deque<Chunk> chunks_;
  size_t bytes_ = 0;  // in chunks_
  size_t taken_ = 0;  // by the take() that is under way
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace pollgap
