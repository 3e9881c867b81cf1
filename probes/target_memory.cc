// SPDX-License-Identifier: Apache-2.0
#include "probes/target_memory.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

namespace pollgap {

TargetMemory::TargetMemory(pid_t pid)
    : pid_(pid),
      pagemap_(::open(("/proc/" + std::to_string(pid) + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC)),
      page_bytes_(static_cast<uint64_t>(sysconf(_SC_PAGESIZE))) {}

size_t TargetMemory::read(uint64_t address, std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    // One remote element a page: the kernel stops at the first element that it cannot read.
    std::array<iovec, 64> remote;
    size_t count = 0;
    uint64_t at = address + done;
    size_t left = out.size() - done;
    for (; left > 0 && count < remote.size(); ++count) {
      const size_t bytes = std::min<uint64_t>(left, page_bytes_ - at % page_bytes_);
      // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of another process
      remote[count] = {reinterpret_cast<void*>(at), bytes};
      at += bytes;
      left -= bytes;
    }
    const iovec local{out.data() + done, out.size() - done - left};
    const ssize_t copied = process_vm_readv(pid_, &local, 1, remote.data(), count, 0);
    if (copied <= 0) break;
    done += static_cast<size_t>(copied);
    if (static_cast<size_t>(copied) < local.iov_len) break;
  }
  return done;
}

void TargetMemory::read_pieces(std::span<MemoryPiece> pieces) {
  std::array<iovec, 1024> local;  // UIO_MAXIOV
  std::array<iovec, 1024> remote;
  while (!pieces.empty()) {
    const size_t count = std::min(pieces.size(), local.size());
    for (size_t i = 0; i < count; ++i) {
      local[i] = {pieces[i].out.data(), pieces[i].out.size()};
      // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of another process
      remote[i] = {reinterpret_cast<void*>(pieces[i].address), pieces[i].out.size()};
      pieces[i].complete = false;
    }
    ssize_t copied = process_vm_readv(pid_, local.data(), count, remote.data(), count, 0);
    size_t done = 0;
    while (done < count && copied >= static_cast<ssize_t>(pieces[done].out.size())) {
      copied -= static_cast<ssize_t>(pieces[done].out.size());
      pieces[done++].complete = true;
    }
    // The kernel has stopped at the first piece that it could not read: go on after it.
    pieces = pieces.subspan(std::min(done + (done < count ? 1 : 0), pieces.size()));
  }
}

std::vector<AddressRange> TargetMemory::resident(AddressRange range) {
  if (!pagemap_ || range.end <= range.start) return {range};
  constexpr uint64_t present = uint64_t{1} << 63;
  std::vector<AddressRange> ranges;
  std::array<uint64_t, 512> entries;
  uint64_t page = range.start / page_bytes_;
  const uint64_t last = (range.end - 1) / page_bytes_;
  while (page <= last) {
    const size_t want = std::min<uint64_t>(entries.size(), last - page + 1);
    const ssize_t got = pread(pagemap_.get(), entries.data(), want * sizeof(uint64_t),
                              static_cast<off_t>(page * sizeof(uint64_t)));
    if (got < static_cast<ssize_t>(sizeof(uint64_t))) return {range};
    const size_t count = static_cast<size_t>(got) / sizeof(uint64_t);
    for (size_t i = 0; i < count; ++i, ++page) {
      if ((entries[i] & present) == 0) continue;
      const uint64_t start = std::max(range.start, page * page_bytes_);
      const uint64_t end = std::min(range.end, (page + 1) * page_bytes_);
      if (!ranges.empty() && ranges.back().end == start) {
        ranges.back().end = end;
      } else {
        ranges.push_back({start, end});
      }
    }
  }
  return ranges;
}

}  // namespace pollgap
