// SPDX-License-Identifier: Apache-2.0
// An opened RDMA device, and one polling thread's loopback pair of queue pairs on it. Only public
// verbs calls.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "probes/result.h"
#include "tools/workload/options.h"

namespace pollgap::workload {

// "what failed: strerror" of a verbs call that returned `error` (0: take errno).
Error verbs_error(const std::string& what, int error = 0);

struct VerbsDeleter {
  void operator()(ibv_context* context) const { ibv_close_device(context); }
  void operator()(ibv_pd* pd) const { ibv_dealloc_pd(pd); }
  void operator()(ibv_cq* cq) const { ibv_destroy_cq(cq); }
  void operator()(ibv_qp* qp) const { ibv_destroy_qp(qp); }
  void operator()(ibv_mr* mr) const { ibv_dereg_mr(mr); }
  void operator()(ibv_comp_channel* channel) const { ibv_destroy_comp_channel(channel); }
};
template <typename T>
using Verbs = std::unique_ptr<T, VerbsDeleter>;

class VerbsDevice {
 public:
  // Port 1 of the device of that name. gid_index: -1 chooses one, where the port has need of it.
  static Result<std::unique_ptr<VerbsDevice>> open(const std::string& name, int gid_index);

  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  const std::string& name() const { return name_; }

  // RESET to INIT, in which receives may be posted.
  Status initialize(ibv_qp* qp) const;
  // INIT to RTS, with a peer on the same port.
  Status connect(ibv_qp* qp, uint32_t peer_qp_num) const;

 private:
  Status choose_address(int gid_index);

  std::string name_;
  Verbs<ibv_context> context_;
  Verbs<ibv_pd> pd_;
  ibv_port_attr port_{};
  int gid_index_ = 0;
  ibv_gid gid_{};
  bool global_ = false;  // addressed by GID, not LID
};

// What a work request is for, in the top byte of its wr_id; the rest counts.
enum class Request : uint64_t { send = 1, receive = 2, storm = 3 };
inline constexpr unsigned request_shift = 56;
inline constexpr uint64_t request_number(uint64_t wr_id) {
  return wr_id & ((uint64_t{1} << request_shift) - 1);
}
inline constexpr Request request_kind(uint64_t wr_id) {
  return static_cast<Request>(wr_id >> request_shift);
}
inline constexpr uint64_t make_wr_id(Request request, uint64_t number) {
  return (static_cast<uint64_t>(request) << request_shift) | number;
}

// A CQ and two connected RC queue pairs, both of whose completions go to it.
class Endpoint {
 public:
  // cq_depth: at least what options ask for.
  static Result<std::unique_ptr<Endpoint>> create(const VerbsDevice& device, const Options& options,
                                                  int cq_depth);

  ibv_cq* cq() const { return cq_.get(); }
  ibv_cq_ex* cq_ex() const { return cq_ex_; }  // nullptr unless the style is extended
  ibv_comp_channel* channel() const { return channel_.get(); }

  // 0, or the errno of ibv_post_send.
  int post(uint64_t number, bool signaled);
  // 0, or the errno of ibv_post_recv.
  int post_receive();

 private:
  Status create_cq(const VerbsDevice& device, PollStyle style, int cq_depth);
  Result<Verbs<ibv_qp>> create_qp(const VerbsDevice& device, const Options& options);
  Status register_memory(const VerbsDevice& device, const Options& options);

  std::vector<char> memory_;
  Verbs<ibv_comp_channel> channel_;
  Verbs<ibv_mr> mr_;
  Verbs<ibv_cq> cq_;
  ibv_cq_ex* cq_ex_ = nullptr;
  Verbs<ibv_qp> sender_;
  Verbs<ibv_qp> receiver_;
  ibv_sge send_sge_{};
  ibv_sge receive_sge_{};
  ibv_send_wr send_wr_{};
  ibv_recv_wr receive_wr_{};
};

}  // namespace pollgap::workload
