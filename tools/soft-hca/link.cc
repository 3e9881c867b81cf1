// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/link.h"

#include <sys/mman.h>

#include <new>

#include "tools/soft-hca/raw_syscalls.h"

namespace pollgap::soft_hca {
namespace {

LinkMemory* map_memory(int fd) {
  void* memory = raw::mmap(nullptr, sizeof(LinkMemory), PROT_READ | PROT_WRITE,
                           fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<LinkMemory*>(memory);
}

LinkMemory* map_own() {
  LinkMemory* memory = map_memory(-1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

Link::Link(uint32_t process)
    : memory_(map_own()),
      process_(process),
      requests_out(&memory_->requests_from_a),
      responses_out(&memory_->responses_from_a),
      requests_in(&memory_->requests_from_a),
      responses_in(&memory_->responses_from_a) {}

Link::Link(uint32_t process, int fd, bool made_here)
    : memory_(map_memory(fd)),
      process_(process),
      requests_out(made_here ? &memory_->requests_from_a : &memory_->requests_from_b),
      responses_out(made_here ? &memory_->responses_from_a : &memory_->responses_from_b),
      requests_in(made_here ? &memory_->requests_from_b : &memory_->requests_from_a),
      responses_in(made_here ? &memory_->responses_from_b : &memory_->responses_from_a) {}

Link::~Link() {
  if (memory_ != nullptr) munmap(memory_, sizeof(LinkMemory));
}

}  // namespace pollgap::soft_hca
