// SPDX-License-Identifier: Apache-2.0
#include "probes/readable_queues.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>

#include "probes/mlx5_queues.h"
#include "probes/rxe_queues.h"

namespace pollgap {
namespace {

struct Provider {
  std::string_view in_path;  // of its module
  void (*find)(MemoryReader& memory, const MemoryMap& map, const ProviderObjects& objects,
               ReadableQueues& found);
};

constexpr std::array<Provider, 2> providers = {{
    {"/libmlx5", find_mlx5_queues},
    {"/librxe", find_rxe_queues},
}};

}  // namespace

ReadableQueues find_readable_queues(MemoryReader& memory, const MemoryMap& map,
                                    std::span<const ContextInfo> contexts) {
  std::map<std::string, ProviderObjects> by_path;
  for (const ContextInfo& context : contexts) {
    ProviderObjects& objects = by_path[context.provider];
    objects.cqs.insert(objects.cqs.end(), context.cqs.begin(), context.cqs.end());
    objects.qps.insert(objects.qps.end(), context.qps.begin(), context.qps.end());
  }
  ReadableQueues found;
  for (const auto& [path, objects] : by_path) {
    const auto provider = std::ranges::find_if(providers, [&path = path](const Provider& one) {
      return path.find(one.in_path) != std::string::npos;
    });
    if (provider != providers.end()) {
      provider->find(memory, map, objects, found);
      continue;
    }
    for (const CqInfo& cq : objects.cqs)
      found.refused.push_back({cq.address, "how " + path + " keeps its CQs is not known"});
  }
  return found;
}

std::optional<ReadableCq> find_again(MemoryReader& memory, const MemoryMap& map,
                                     const ReadableCq& cq) {
  CqInfo info{.address = cq.ring.cq, .context = cq.ring.context};
  const auto context = memory.load<uint64_t>(info.address + offsetof(ibv_cq, context));
  const auto cqe = memory.load<int>(info.address + offsetof(ibv_cq, cqe));
  if (context != info.context || !cqe || *cqe <= 0) return std::nullopt;
  info.cqe = *cqe;
  return cq.queues->again(memory, map, info);
}

}  // namespace pollgap
