// SPDX-License-Identifier: Apache-2.0
// A program that really uses verbs, over the soft adapter and the distribution's stripped libmlx5.
// It says where everything of it is, as the program itself knows, and then does what it is told on
// standard input, one command a line, answering each with a line:
//   list    the devices, which loads the providers
//   open    the device, and creates a CQ, an extended CQ, one with a channel, and a QP
//   poll N  | start N (start_poll, end_poll) | register N | post N | create N (CQs)
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "tools/soft-hca/soft_hca.h"

namespace {

struct Verbs {
  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_cq* channel_cq = nullptr;
  ibv_cq_ex* extended = nullptr;
  ibv_qp* qp = nullptr;
  ibv_wc completions[4] = {};
  char buffer[4096] = {};
};

void check(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::exit(1);
}

void say(const char* name, uint64_t value) {
  std::printf("%s %llu\n", name, static_cast<unsigned long long>(value));
}

template <typename T>
uint64_t address(T* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

ibv_device** list_devices() {
  static const std::string failed = pollgap::soft_hca::start({.spin = false});
  check(failed.empty(), failed.c_str());
  return ibv_get_device_list(nullptr);
}

void open_device(Verbs& verbs) {
  ibv_device** devices = list_devices();
  check(devices != nullptr && devices[0] != nullptr, "no device");
  verbs.context = ibv_open_device(devices[0]);
  check(verbs.context != nullptr, "ibv_open_device");
  ibv_free_device_list(devices);
  verbs.domain = ibv_alloc_pd(verbs.context);
  verbs.channel = ibv_create_comp_channel(verbs.context);
  verbs.cq = ibv_create_cq(verbs.context, 100, nullptr, nullptr, 0);
  verbs.channel_cq = ibv_create_cq(verbs.context, 50, nullptr, verbs.channel, 0);
  ibv_cq_init_attr_ex extended{};
  extended.cqe = 30;
  verbs.extended = ibv_create_cq_ex(verbs.context, &extended);
  check(verbs.domain != nullptr && verbs.channel != nullptr && verbs.cq != nullptr &&
            verbs.channel_cq != nullptr && verbs.extended != nullptr,
        "CQs");
  ibv_qp_init_attr attributes{};
  attributes.send_cq = verbs.cq;
  attributes.recv_cq = verbs.channel_cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {16, 16, 1, 1, 0};
  verbs.qp = ibv_create_qp(verbs.domain, &attributes);
  check(verbs.qp != nullptr, "ibv_create_qp");
}

void describe(const Verbs& verbs) {
  say("context", address(verbs.context));
  say("poll_cq", address(verbs.context->ops.poll_cq));
  say("post_send", address(verbs.context->ops.post_send));
  say("post_recv", address(verbs.context->ops.post_recv));
  say("cmd_fd", static_cast<uint64_t>(verbs.context->cmd_fd));
  say("cq", address(verbs.cq));
  say("cqe", static_cast<uint64_t>(verbs.cq->cqe));
  say("channel_cq", address(verbs.channel_cq));
  say("channel", address(verbs.channel));
  say("extended", address(verbs.extended));
  say("start_poll", address(verbs.extended->start_poll));
  say("next_poll", address(verbs.extended->next_poll));
  say("end_poll", address(verbs.extended->end_poll));
  say("qp", address(verbs.qp));
  say("qp_num", verbs.qp->qp_num);
  say("completions", address(verbs.completions));
}

void run(Verbs& verbs, const std::string& command, int count) {
  if (verbs.cq == nullptr || verbs.extended == nullptr || verbs.qp == nullptr) {
    (void)fprintf(stderr, "open the device first\n");
    std::exit(1);
  }
  for (int i = 0; i < count; ++i) {
    if (command == "poll") {
      check(ibv_poll_cq(verbs.cq, 4, verbs.completions) == 0, "ibv_poll_cq");
    } else if (command == "start") {
      ibv_poll_cq_attr attributes{};
      check(ibv_start_poll(verbs.extended, &attributes) == ENOENT, "ibv_start_poll");
    } else if (command == "register") {
      ibv_mr* region = ibv_reg_mr(verbs.domain, verbs.buffer, sizeof(verbs.buffer), 0);
      check(region != nullptr, "ibv_reg_mr");
      ibv_dereg_mr(region);
    } else if (command == "post") {
      ibv_send_wr request{};
      ibv_send_wr* bad = nullptr;
      ibv_post_send(verbs.qp, &request, &bad);  // refused in this state: the call is what counts
    } else if (command == "create") {
      ibv_cq* cq = ibv_create_cq(verbs.context, 10, nullptr, nullptr, 0);
      check(cq != nullptr && ibv_destroy_cq(cq) == 0, "ibv_create_cq");
    }
  }
}

}  // namespace

int main() {
  Verbs verbs;
  std::printf("ready\n");
  std::fflush(stdout);
  std::string command;
  while (std::cin >> command) {
    int count = 0;
    if (command == "open") {
      open_device(verbs);
      describe(verbs);
    } else if (command == "list") {
      ibv_device** devices = list_devices();
      check(devices != nullptr, "ibv_get_device_list");
      ibv_free_device_list(devices);
    } else if (std::cin >> count) {
      run(verbs, command, count);
    }
    std::printf("done\n");
    std::fflush(stdout);
  }
  return 0;
}
