// SPDX-License-Identifier: Apache-2.0
// An object in memory that stays shared with processes that are forked later.
#pragma once

#include <sys/mman.h>

#include <new>

namespace pollgap::workload {

// T must be of use without a constructor's or destructor's help across processes: plain data and
// lock-free atomics.
template <typename T>
class SharedMemory {
 public:
  // Throws std::bad_alloc when there is no memory. The pages are touched.
  SharedMemory() {
    void* const memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    object_ = new (memory) T;
  }
  ~SharedMemory() { munmap(object_, sizeof(T)); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }

 private:
  T* object_ = nullptr;
};

}  // namespace pollgap::workload
