// SPDX-License-Identifier: Apache-2.0
#include "probes/readable_queues.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <map>

namespace pollgap {
namespace {

// The layout that most objects have; nullptr where none has any.
template <typename Layout, typename Object, typename Fits>
const Layout* most_common(std::span<const Layout> layouts, const std::vector<Object>& objects,
                          const Fits& fits) {
  const Layout* best = nullptr;
  std::ptrdiff_t most = 0;
  for (const Layout& layout : layouts) {
    const auto count =
        std::ranges::count_if(objects, [&](const Object& object) { return fits(object, layout); });
    if (count > most) {
      most = count;
      best = &layout;
    }
  }
  return best;
}

class Search {
 public:
  Search(MemoryReader& memory, const MemoryMap& map) : memory_(memory), map_(map) {}

  ReadableQueues run(std::span<const ContextInfo> contexts) {
    std::map<std::string, Provider> providers;
    for (const ContextInfo& context : contexts) {
      Provider& provider = providers[context.provider];
      provider.cqs.insert(provider.cqs.end(), context.cqs.begin(), context.cqs.end());
      provider.qps.insert(provider.qps.end(), context.qps.begin(), context.qps.end());
    }
    for (const auto& [path, provider] : providers) add(path, provider);
    return std::move(found_);
  }

 private:
  struct Provider {
    std::vector<CqInfo> cqs;
    std::vector<QpInfo> qps;
  };

  void add(const std::string& path, const Provider& provider) {
    if (path.find("/libmlx5") == std::string::npos) {
      for (const CqInfo& cq : provider.cqs)
        found_.refused.push_back({cq.address, "how " + path + " keeps its CQs is not known"});
      return;
    }
    const CqLayout* layout = most_common(mlx5_cq_layouts(), provider.cqs,
                                         [this](const CqInfo& cq, const CqLayout& candidate) {
                                           return has_layout(memory_, map_, cq, candidate);
                                         });
    const SendQueueLayout* sends =
        most_common(mlx5_send_queue_layouts(), provider.qps,
                    [this](const QpInfo& qp, const SendQueueLayout& candidate) {
                      return find_send_queue(memory_, map_, qp, candidate).has_value();
                    });
    for (const CqInfo& cq : provider.cqs) {
      const auto ring = layout == nullptr ? std::nullopt : find_cq_ring(memory_, map_, cq, *layout);
      if (!ring) {
        found_.refused.push_back({cq.address,
                                  "its memory has none of the known layouts of mlx5's "
                                  "CQs (rdma-core 35 and later)"});
        continue;
      }
      found_.cqs.push_back({*ring, layout, {}, 0});
      for (const QpInfo& qp : provider.qps)
        if (qp.send_cq == cq.address) add_sends(found_.cqs.back(), qp, sends);
    }
  }

  void add_sends(ReadableCq& cq, const QpInfo& qp, const SendQueueLayout* layout) {
    const auto queue =
        layout == nullptr ? std::nullopt : find_send_queue(memory_, map_, qp, *layout);
    if (queue) {
      cq.sends.push_back(*queue);
    } else {
      ++cq.unreadable_sends;
    }
  }

  MemoryReader& memory_;
  const MemoryMap& map_;
  ReadableQueues found_;
};

}  // namespace

ReadableQueues find_readable_queues(MemoryReader& memory, const MemoryMap& map,
                                    std::span<const ContextInfo> contexts) {
  return Search(memory, map).run(contexts);
}

std::optional<CqRing> find_again(MemoryReader& memory, const MemoryMap& map, const ReadableCq& cq) {
  CqInfo info{.address = cq.ring.cq, .context = cq.ring.context};
  const auto context = memory.load<uint64_t>(info.address + offsetof(ibv_cq, context));
  const auto cqe = memory.load<int>(info.address + offsetof(ibv_cq, cqe));
  if (context != info.context || !cqe || *cqe <= 0) return std::nullopt;
  info.cqe = *cqe;
  return find_cq_ring(memory, map, info, *cq.layout);
}

}  // namespace pollgap
