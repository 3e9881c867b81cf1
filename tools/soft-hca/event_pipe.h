// SPDX-License-Identifier: Apache-2.0
// A completion channel or the asynchronous events of a context: the kernel has an event file for
// each (drivers/infiniband/core/uverbs_main.c); here it is a pipe, so that the program's read, poll
// and fcntl work on it with no help.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace pollgap::soft_hca {

// Owns the writing end and a reading end of its own; the program owns, and closes, reader_fd().
class EventPipe {
 public:
  // Null with errno set when there are no descriptors left.
  static std::shared_ptr<EventPipe> create();
  ~EventPipe();
  EventPipe(const EventPipe&) = delete;
  EventPipe& operator=(const EventPipe&) = delete;

  int reader_fd() const { return reader_fd_; }

  // Adds one event; `size` divides 4096, so that events stay whole. Never blocks: false when the
  // pipe is full.
  bool post(const void* event, size_t size);

  // Takes the unread events that begin with the 64-bit `element` out of the pipe and returns their
  // number. Destroying an object does this in the kernel (ib_uverbs_release_ucq), and libibverbs
  // waits until the program has acknowledged all events that were *not* taken out.
  uint32_t withdraw(uint64_t element, size_t event_size);

 private:
  EventPipe(int reader, int own_reader, int writer)
      : reader_fd_(reader), own_reader_fd_(own_reader), writer_fd_(writer) {}

  int reader_fd_;
  int own_reader_fd_;  // a second open of the same pipe: non-blocking whatever the program set
  int writer_fd_;
};

}  // namespace pollgap::soft_hca
