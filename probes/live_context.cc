// SPDX-License-Identifier: Apache-2.0
#include "probes/live_context.h"

#include <infiniband/verbs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <unordered_set>

namespace pollgap {
namespace {

// The public structs are libibverbs' stable ABI, so the header this was built with describes those
// of every version of the library.
static_assert(sizeof(ibv_context) == 328 && offsetof(ibv_context, abi_compat) == 320);
static_assert(offsetof(ibv_context, ops) == 8 && offsetof(ibv_context, cmd_fd) == 264);
static_assert(sizeof(ibv_cq) == 128 && offsetof(ibv_cq, cqe) == 28);
static_assert(offsetof(ibv_cq_ex, start_poll) == 144 && offsetof(ibv_cq_ex, end_poll) == 160);
static_assert(offsetof(ibv_qp, qp_num) == 52 && offsetof(ibv_qp, qp_type) == 60);

constexpr size_t chunk_bytes = 1 << 20;
// ibv_context.abi_compat of every context since verbs_context exists: __VERBS_ABI_IS_EXTENDED.
constexpr uint64_t extended_abi = ~uint64_t{0};
constexpr uint64_t min_verbs_context_bytes = 600, max_verbs_context_bytes = 1024;
// Words from verbs_context.sz, just before the ibv_context, to abi_compat.
constexpr size_t size_to_abi = 1 + offsetof(ibv_context, abi_compat) / 8;
constexpr int max_plausible_cqe = 1 << 26;
constexpr int max_plausible_vectors = 1 << 16;

template <typename T>
T field(std::span<const std::byte> object, size_t offset) {
  T value;
  memcpy(&value, object.data() + offset, sizeof(T));
  return value;
}

bool is_context_size(uint64_t bytes) {
  return bytes % 8 == 0 && bytes >= min_verbs_context_bytes && bytes <= max_verbs_context_bytes;
}

uint64_t pointer(std::span<const std::byte> object, size_t offset) {
  return field<uint64_t>(object, offset);
}

// Where a heap object can be: private writable memory that is no file's, nor a device's. The heap
// and small mappings come first, so that a limit cuts off large buffers.
std::vector<Mapping> places_to_look(const MemoryMap& map) {
  std::vector<Mapping> places;
  for (const Mapping& mapping : map.mappings()) {
    if (!mapping.readable || !mapping.writable || mapping.shared || mapping.is_file()) continue;
    if (mapping.path == "[vvar]" || mapping.path.starts_with("/dev/")) continue;
    places.push_back(mapping);
  }
  const auto rank = [](const Mapping& mapping) {
    return std::pair(mapping.path != "[heap]", mapping.end - mapping.start);
  };
  std::stable_sort(places.begin(), places.end(),
                   [&](const Mapping& a, const Mapping& b) { return rank(a) < rank(b); });
  return places;
}

// Reads the places in chunks and hands each chunk to `visit(address, words)` until it returns false
// or the limit is reached. Returns whether all was read.
class Sweep {
 public:
  Sweep(MemoryReader& memory, const MemoryMap& map, const LiveScanOptions& options)
      : memory_(memory), places_(places_to_look(map)), options_(options) {}

  template <typename Visit>
  bool run(Visit visit) {
    bytes_ = 0;
    uint64_t span = 0;
    for (const Mapping& place : places_) {
      for (uint64_t at = place.start; at < place.end;) {
        if (span >= options_.max_span_bytes) return false;
        const uint64_t end = at + std::min<uint64_t>(chunk_bytes, place.end - at);
        span += end - at;
        for (const AddressRange& range : memory_.resident({at, end})) {
          if (bytes_ >= options_.max_bytes) return false;
          if (!read(range, visit)) return true;
        }
        at = end;
      }
    }
    return true;
  }

  uint64_t bytes() const { return bytes_; }

 private:
  template <typename Visit>
  bool read(AddressRange range, Visit visit) {
    const uint64_t bytes = range.end - range.start;
    if (range.start % 8 != 0 || bytes > chunk_bytes) return true;
    if (buffer_.size() * 8 < bytes) buffer_.resize((bytes + 7) / 8);
    const size_t got = memory_.read(
        range.start, std::as_writable_bytes(std::span(buffer_)).first(static_cast<size_t>(bytes)));
    bytes_ += bytes;
    return visit(range.start, std::span<const uint64_t>(buffer_).first(got / 8));
  }

  MemoryReader& memory_;
  std::vector<Mapping> places_;
  const LiveScanOptions& options_;
  uint64_t bytes_ = 0;
  std::vector<uint64_t> buffer_;
};

class Scanner {
 public:
  Scanner(MemoryReader& memory, const MemoryMap& map, const std::set<int>& open_fds,
          const LiveScanOptions& options)
      : memory_(memory), map_(map), open_fds_(open_fds), options_(options) {}

  LiveScan run() {
    Sweep sweep(memory_, map_, options_);
    bool complete = find_contexts(sweep);
    scan_.scanned_bytes = sweep.bytes();
    if (!scan_.contexts.empty()) complete = find_objects(sweep) && complete;
    if (!complete) {
      scan_.notes.push_back("only " + std::to_string(sweep.bytes() >> 20) +
                            " MiB of the process's private memory were looked through: objects "
                            "beyond were not seen");
    }
    return std::move(scan_);
  }

 private:
  bool find_contexts(Sweep& sweep) {
    return sweep.run([&](uint64_t address, std::span<const uint64_t> words) {
      for (size_t i = 0; i < words.size(); ++i) {
        if (words[i] != extended_abi) continue;
        // Most words of all ones are something else: seen without another read of the memory.
        if (i >= size_to_abi && !is_context_size(words[i - size_to_abi])) continue;
        consider_context(address + 8 * i - offsetof(ibv_context, abi_compat));
        if (scan_.contexts.size() >= options_.max_contexts) return false;
      }
      return true;
    });
  }

  void consider_context(uint64_t address) {
    std::array<std::byte, 8 + sizeof(ibv_context)> bytes;  // from verbs_context.sz on
    if (memory_.read(address - 8, bytes) != bytes.size()) return;
    const auto context = std::span<const std::byte>(bytes).subspan(8);
    if (!is_context_size(field<uint64_t>(bytes, 0))) return;
    if (pointer(context, offsetof(ibv_context, abi_compat)) != extended_abi) return;
    const int vectors = field<int>(context, offsetof(ibv_context, num_comp_vectors));
    if (vectors < 0 || vectors > max_plausible_vectors) return;

    ContextInfo info;
    info.address = address;
    info.cmd_fd = field<int>(context, offsetof(ibv_context, cmd_fd));
    info.poll_cq = pointer(context, offsetof(ibv_context, ops.poll_cq));
    info.post_send = pointer(context, offsetof(ibv_context, ops.post_send));
    info.post_recv = pointer(context, offsetof(ibv_context, ops.post_recv));
    const Mapping* provider = provider_of({info.poll_cq, info.post_send, info.post_recv});
    if (provider == nullptr) return;
    info.provider = provider->path;
    info.device = device_name(pointer(context, offsetof(ibv_context, device)));
    if (info.device.empty()) return;
    // A closed context keeps its content until its memory is used again, but not its descriptor.
    if (!open_fds_.contains(info.cmd_fd)) {
      scan_.notes.push_back("an ibv_context of " + info.device +
                            " was passed over: its command descriptor is closed");
      return;
    }
    scan_.contexts.push_back({std::move(info), {}});
  }

  // The one file, other than libibverbs with its dummy functions, that all the functions are in.
  const Mapping* provider_of(std::initializer_list<uint64_t> functions) const {
    const Mapping* provider = nullptr;
    for (const uint64_t function : functions) {
      const Mapping* mapping = map_.find(function);
      if (mapping == nullptr || !mapping->executable || !mapping->is_file()) return nullptr;
      if (mapping->path.find("/libibverbs.so") != std::string::npos) return nullptr;
      if (provider != nullptr && !mapping->same_file(*provider)) return nullptr;
      provider = mapping;
    }
    return provider;
  }

  std::string device_name(uint64_t device) {
    std::array<char, sizeof(ibv_device::name)> name;
    if (memory_.read(device + offsetof(ibv_device, name),
                     std::as_writable_bytes(std::span(name))) != name.size()) {
      return {};
    }
    const auto end = std::find(name.begin(), name.end(), '\0');
    const bool printable = std::all_of(name.begin(), end, [](char c) { return c > 32 && c < 127; });
    return end != name.end() && printable ? std::string(name.begin(), end) : std::string();
  }

  bool find_objects(Sweep& sweep) {
    for (size_t i = 0; i < scan_.contexts.size(); ++i) {
      by_address_[scan_.contexts[i].info.address] = &scan_.contexts[i];
    }
    const uint64_t lowest = by_address_.begin()->first, highest = by_address_.rbegin()->first;
    const bool complete = sweep.run([&](uint64_t address, std::span<const uint64_t> words) {
      for (size_t i = 0; i < words.size(); ++i) {
        if (words[i] < lowest || words[i] > highest) continue;
        const auto context = by_address_.find(words[i]);
        if (context != by_address_.end()) consider_object(address + 8 * i, *context->second);
        if (objects_ >= options_.max_objects) return false;
      }
      return true;
    });
    if (objects_ >= options_.max_objects) {
      scan_.notes.push_back("more than " + std::to_string(options_.max_objects) +
                            " CQs and QPs: the rest is not listed");
    }
    for (LiveContext& context : scan_.contexts) keep_consistent_qps(context);
    return complete;
  }

  void consider_object(uint64_t address, LiveContext& context) {
    std::array<std::byte, sizeof(ibv_cq)> bytes;
    if (memory_.read(address, bytes) != bytes.size()) return;
    if (is_cq(bytes, context.info.address)) {
      add_cq(address, bytes, context);
    } else if (is_qp(bytes, context.info.address)) {
      add_qp(address, bytes, context);
    } else {
      return;
    }
    ++objects_;
  }

  bool belongs_to(uint64_t object, uint64_t context) {
    return object != 0 && memory_.load<uint64_t>(object) == context;
  }

  // Told from the other objects that begin with their context: a PD, MR, AH, MW or SRQ has no size
  // at ibv_cq.cqe, a QP or WQ no mutex after it, and a completion channel holds a descriptor.
  bool is_cq(std::span<const std::byte> object, uint64_t context) {
    const int cqe = field<int>(object, offsetof(ibv_cq, cqe));
    if (cqe <= 0 || cqe > max_plausible_cqe) return false;
    if (!is_mutex(object.subspan(offsetof(ibv_cq, mutex)))) return false;
    const uint64_t channel = pointer(object, offsetof(ibv_cq, channel));
    if (channel == 0) return true;
    const auto fd = memory_.load<int>(channel + offsetof(ibv_comp_channel, fd));
    return belongs_to(channel, context) && fd && open_fds_.contains(*fd);
  }

  // A pthread_mutex_t in any state that the C library leaves it in: lock word, recursion count (0:
  // it is not a recursive one), owner, users, kind.
  static bool is_mutex(std::span<const std::byte> mutex) {
    return field<uint32_t>(mutex, 0) <= 2 && field<uint32_t>(mutex, 4) == 0 &&
           field<uint32_t>(mutex, 16) < 0x1000;
  }

  bool is_qp(std::span<const std::byte> object, uint64_t context) {
    const auto state = field<uint32_t>(object, offsetof(ibv_qp, state));
    const auto type = field<uint32_t>(object, offsetof(ibv_qp, qp_type));
    const auto number = field<uint32_t>(object, offsetof(ibv_qp, qp_num));
    const bool known_type = (type >= IBV_QPT_RC && type <= IBV_QPT_UD) ||
                            (type >= IBV_QPT_RAW_PACKET && type <= IBV_QPT_XRC_RECV) ||
                            type == IBV_QPT_DRIVER;
    if (state > IBV_QPS_ERR || !known_type || number >= 1 << 24) return false;
    const uint64_t send_cq = pointer(object, offsetof(ibv_qp, send_cq));
    const uint64_t recv_cq = pointer(object, offsetof(ibv_qp, recv_cq));
    const uint64_t domain = pointer(object, offsetof(ibv_qp, pd));
    return (send_cq != 0 || recv_cq != 0) && (domain == 0 || belongs_to(domain, context)) &&
           (send_cq == 0 || belongs_to(send_cq, context)) &&
           (recv_cq == 0 || belongs_to(recv_cq, context));
  }

  void add_cq(uint64_t address, std::span<const std::byte> object, LiveContext& context) {
    CqInfo cq;
    cq.address = address;
    cq.context = context.info.address;
    cq.handle = field<uint32_t>(object, offsetof(ibv_cq, handle));
    cq.cqe = field<int>(object, offsetof(ibv_cq, cqe));
    cq.channel = pointer(object, offsetof(ibv_cq, channel));
    std::array<uint64_t, 3> functions;  // start_poll, next_poll, end_poll
    if (memory_.read(address + offsetof(ibv_cq_ex, start_poll),
                     std::as_writable_bytes(std::span(functions))) == sizeof(functions)) {
      const Mapping* provider = provider_of({functions[0], functions[1], functions[2]});
      cq.extended = provider != nullptr && provider->path == context.info.provider;
    }
    if (cq.extended) {
      context.extended.push_back({address, functions[0], functions[1], functions[2]});
    }
    context.info.cqs.push_back(cq);
  }

  static void add_qp(uint64_t address, std::span<const std::byte> object, LiveContext& context) {
    QpInfo qp;
    qp.address = address;
    qp.context = context.info.address;
    qp.send_cq = pointer(object, offsetof(ibv_qp, send_cq));
    qp.recv_cq = pointer(object, offsetof(ibv_qp, recv_cq));
    qp.qp_num = field<uint32_t>(object, offsetof(ibv_qp, qp_num));
    qp.state = field<int>(object, offsetof(ibv_qp, state));
    qp.type = field<int>(object, offsetof(ibv_qp, qp_type));
    context.info.qps.push_back(qp);
  }

  // A QP's queues are CQs: one whose are not is a leftover or no QP at all.
  static void keep_consistent_qps(LiveContext& context) {
    std::unordered_set<uint64_t> cqs = {0};
    for (const CqInfo& cq : context.info.cqs) cqs.insert(cq.address);
    std::erase_if(context.info.qps, [&](const QpInfo& qp) {
      return !cqs.contains(qp.send_cq) || !cqs.contains(qp.recv_cq);
    });
  }

  MemoryReader& memory_;
  const MemoryMap& map_;
  const std::set<int>& open_fds_;
  const LiveScanOptions& options_;
  LiveScan scan_;
  std::map<uint64_t, LiveContext*> by_address_;
  size_t objects_ = 0;
};

}  // namespace

LiveScan scan_live_contexts(MemoryReader& memory, const MemoryMap& map,
                            const std::set<int>& open_fds, const LiveScanOptions& options) {
  return Scanner(memory, map, open_fds, options).run();
}

}  // namespace pollgap
