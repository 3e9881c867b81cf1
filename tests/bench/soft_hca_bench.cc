// SPDX-License-Identifier: Apache-2.0
// What polls cost on the soft adapter. They run libmlx5's own code, so an empty poll must cost what
// it does on an adapter, 10 to 20 ns on current machines. The device thread sleeps between rounds.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tools/soft-hca/soft_hca.h"

namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "soft_hca_bench: %s\n", what.c_str());
  std::exit(1);
}

ibv_context* open_device() {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  if (devices == nullptr || count != 1) fail("there is no device");
  ibv_context* context = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  if (context == nullptr) fail("the device cannot be opened");
  return context;
}

ibv_context* device() {
  static ibv_context* const context = open_device();
  return context;
}

void empty_poll(benchmark::State& state) {
  ibv_cq* cq = ibv_create_cq(device(), 256, nullptr, nullptr, 0);
  ibv_wc completion{};
  for (auto _ : state) {
    const int got = ibv_poll_cq(cq, 1, &completion);
    if (got != 0) state.SkipWithError("a completion out of nothing");
    benchmark::DoNotOptimize(got);
  }
  ibv_destroy_cq(cq);
}
BENCHMARK(empty_poll);

void empty_start_poll(benchmark::State& state) {
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = 256;
  attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* cq = ibv_create_cq_ex(device(), &attributes);
  if (cq == nullptr) fail("no extended CQ");
  ibv_poll_cq_attr poll{};
  for (auto _ : state) {
    const int result = ibv_start_poll(cq, &poll);
    if (result != ENOENT) state.SkipWithError("a completion out of nothing");
    benchmark::DoNotOptimize(result);
  }
  ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
}
BENCHMARK(empty_start_poll);

void modify(ibv_qp* qp, ibv_qp_attr attributes, ibv_qp_state state, int mask) {
  attributes.qp_state = state;
  if (ibv_modify_qp(qp, &attributes, mask | IBV_QP_STATE) != 0) fail("ibv_modify_qp");
}

// A queue pair that is connected to itself.
ibv_qp* connected_queue_pair(ibv_pd* pd, ibv_cq* cq) {
  ibv_qp_init_attr creation{};
  creation.qp_type = IBV_QPT_RC;
  creation.send_cq = creation.recv_cq = cq;
  creation.cap = {64, 64, 1, 1, 0};
  ibv_qp* qp = ibv_create_qp(pd, &creation);
  if (qp == nullptr) fail("ibv_create_qp");
  ibv_qp_attr attributes{};
  attributes.port_num = 1;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  modify(qp, attributes, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  attributes.path_mtu = IBV_MTU_4096;
  attributes.dest_qp_num = qp->qp_num;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.dlid = 1;
  modify(qp, attributes, IBV_QPS_RTR,
         IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER);
  attributes.timeout = 14;
  attributes.retry_cnt = 7;
  modify(qp, attributes, IBV_QPS_RTS,
         IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
             IBV_QP_MAX_QP_RD_ATOMIC);
  return qp;
}

// From the post of a small write to its completion; the device thread's sleep is most of it.
void signaled_write(benchmark::State& state) {
  static std::array<char, 4096> memory;
  ibv_pd* pd = ibv_alloc_pd(device());
  ibv_mr* mr = ibv_reg_mr(pd, memory.data(), memory.size(),
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  ibv_cq* cq = ibv_create_cq(device(), 256, nullptr, nullptr, 0);
  ibv_qp* qp = connected_queue_pair(pd, cq);
  ibv_sge sge{reinterpret_cast<uint64_t>(memory.data()), 64, mr->lkey};
  ibv_send_wr request{};
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(memory.data()) + 1024;
  request.wr.rdma.rkey = mr->rkey;
  for (auto _ : state) {
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qp, &request, &bad) != 0) fail("ibv_post_send");
    ibv_wc completion{};
    while (ibv_poll_cq(cq, 1, &completion) == 0) {
    }
    if (completion.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(completion.status));
  }
  ibv_destroy_qp(qp);
  ibv_destroy_cq(cq);
  ibv_dereg_mr(mr);
  ibv_dealloc_pd(pd);
}
BENCHMARK(signaled_write);

void check_that_polls_are_libmlx5s() {
  Dl_info where{};
  if (dladdr(reinterpret_cast<void*>(device()->ops.poll_cq), &where) == 0 ||
      std::string(where.dli_fname).find("libmlx5") == std::string::npos) {
    fail("ctx->ops.poll_cq is not in libmlx5");
  }
  benchmark::AddCustomContext("poll_cq", where.dli_fname);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  pollgap::soft_hca::Options options;
  options.spin = false;
  options.real_time = true;
  const std::string problem = pollgap::soft_hca::start(options);
  if (!problem.empty()) fail(problem);
  check_that_polls_are_libmlx5s();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
