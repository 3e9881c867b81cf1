// SPDX-License-Identifier: Apache-2.0
// A million operations of every kind on many queue pairs, while faults strike at random: every
// completion is delivered exactly once, in order per queue, and every message has its data.
//
//   soft_hca_random_test [--operations N] [--seed N]
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/native/soft_hca_verbs.h"
#include "tools/soft-hca/soft_hca.h"

// ThreadSanitizer cannot see libmlx5 hand the memory over, so it must not look at our accesses.
#define POLLGAP_SHARED_WITH_ADAPTER __attribute__((no_sanitize("thread"), noinline))

namespace pollgap {
namespace {

uint64_t operations = 1'000'000;
uint64_t seed = 1;

constexpr size_t kConnections = 6;
constexpr uint64_t kWindow = 24;  // requests in flight on a connection
constexpr size_t kSlots = 32;     // for their data
constexpr uint32_t kSlotBytes = 2048;
constexpr uint64_t kReceiveBit = uint64_t{1} << 63;
constexpr int kRights = kAllRemote | IBV_ACCESS_REMOTE_ATOMIC;

uint8_t pattern(uint64_t id, uint32_t at) {
  return static_cast<uint8_t>(id * 131 + uint64_t{at} * 7 + 3);
}

POLLGAP_SHARED_WITH_ADAPTER void fill(uint8_t* to, uint64_t id, uint32_t length) {
  for (uint32_t i = 0; i < length; ++i) to[i] = pattern(id, i);
}

POLLGAP_SHARED_WITH_ADAPTER bool holds(const uint8_t* bytes, uint64_t id, uint32_t length) {
  for (uint32_t i = 0; i < length; ++i) {
    if (bytes[i] != pattern(id, i)) return false;
  }
  return true;
}

POLLGAP_SHARED_WITH_ADAPTER uint64_t load_word(const uint8_t* bytes) {
  return *reinterpret_cast<const volatile uint64_t*>(bytes);
}

struct Operation {
  uint64_t id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  uint32_t length = 0;
};

// One direction: a requester and its responder.
class Connection {
 public:
  Connection(ibv_pd* pd, ibv_cq* cq)
      : requester(make_pair_end(pd, cq, cq, options())),
        responder(make_pair_end(pd, cq, cq, options())),
        local_(pd, kSlots * kSlotBytes, kRights),
        remote_(pd, kSlots * kSlotBytes, kRights),
        received_(pd, kSlots * kSlotBytes, kRights),
        counter_(pd, 4096, kRights) {
    connect(requester.get(), responder.get(), options());
  }

  static PairOptions options() {
    PairOptions options;
    options.timeout = 10;  // 4.2 ms
    options.access = kRights;
    return options;
  }

  // An operation's slot must not be used again before both its completions are there.
  bool has_room() const {
    uint64_t oldest = next_id_;
    if (!sends_.empty()) oldest = std::min(oldest, sends_.front().id);
    if (!receives_.empty()) oldest = std::min(oldest, receives_.front().id);
    return next_id_ - oldest < kWindow;
  }
  bool idle() const { return sends_.empty() && receives_.empty(); }
  uint64_t completed() const { return completed_; }

  void post(std::mt19937_64* random) {
    static constexpr std::array kOpcodes{IBV_WR_SEND,       IBV_WR_SEND_WITH_IMM,
                                         IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                         IBV_WR_RDMA_READ,  IBV_WR_ATOMIC_FETCH_AND_ADD};
    Operation operation;
    operation.id = next_id_++;
    operation.opcode = kOpcodes[(*random)() % kOpcodes.size()];
    const bool atomic = operation.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    // Mostly small, now and then of two packets.
    operation.length = atomic ? 8 : 1 + static_cast<uint32_t>((*random)() % 100);
    if (!atomic && (*random)() % 16 == 0) operation.length = 1500;
    const size_t slot = offset(operation.id);
    if (takes_receive(operation)) {
      ASSERT_EQ(post_receive(responder.get(), operation.id | kReceiveBit,
                             received_.sge(slot, kSlotBytes)),
                0);
      receives_.push_back(operation);
    }
    fill((operation.opcode == IBV_WR_RDMA_READ ? remote_ : local_).bytes.data() + slot,
         operation.id, operation.length);
    const Buffer& target = atomic ? counter_ : remote_;
    ibv_sge sge = local_.sge(slot, operation.length);
    ibv_send_wr request{};
    ibv_send_wr* bad = nullptr;
    request.wr_id = operation.id;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = operation.opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    request.imm_data = static_cast<uint32_t>(operation.id);
    const uint64_t address = reinterpret_cast<uint64_t>(target.bytes.data()) + (atomic ? 0 : slot);
    if (atomic) {
      request.wr.atomic.remote_addr = address;
      request.wr.atomic.rkey = target.region->rkey;
      request.wr.atomic.compare_add = 1;
    } else {
      request.wr.rdma.remote_addr = address;
      request.wr.rdma.rkey = target.region->rkey;
    }
    ASSERT_EQ(ibv_post_send(requester.get(), &request, &bad), 0);
    sends_.push_back(operation);
  }

  void take(const ibv_wc& completion) {
    const bool receive = (completion.wr_id & kReceiveBit) != 0;
    ASSERT_EQ(completion.qp_num, (receive ? responder : requester)->qp_num);
    std::deque<Operation>& expected = receive ? receives_ : sends_;
    ASSERT_FALSE(expected.empty()) << "a completion too many";
    const Operation operation = expected.front();
    ASSERT_EQ(completion.wr_id & ~kReceiveBit, operation.id) << "out of order, or twice";
    expected.pop_front();
    ++completed_;
    if (completion.status != IBV_WC_SUCCESS) {
      ASSERT_TRUE(failing_) << ibv_wc_status_str(completion.status);
      failed_[receive] = true;
      return;
    }
    ASSERT_FALSE(failed_[receive]) << "a success behind an error";
    receive ? check_receive(completion, operation) : check_send(operation);
  }

  // From now on errors are right, until renew().
  void expect_errors() { failing_ = true; }
  bool failing() const { return failing_; }

  // Both ends anew, when all that was posted has come back.
  void renew() {
    ASSERT_TRUE(idle());
    ASSERT_EQ(move_to(requester.get(), IBV_QPS_RESET), 0);
    ASSERT_EQ(move_to(responder.get(), IBV_QPS_RESET), 0);
    // Other sequence numbers: packets of the time before may still be on the wire.
    PairOptions anew = options();
    anew.psn = (anew.psn + ++renewals_ * 0x10000) & 0xffffff;
    connect(requester.get(), responder.get(), anew);
    failing_ = false;
    failed_ = {};
    added_ = load_word(counter_.bytes.data());  // what failed may have been done, or not
  }

  Pair requester;
  Pair responder;

 private:
  static size_t offset(uint64_t id) { return id % kSlots * kSlotBytes; }
  static bool takes_receive(const Operation& operation) {
    return operation.opcode == IBV_WR_SEND || operation.opcode == IBV_WR_SEND_WITH_IMM ||
           operation.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }

  void check_receive(const ibv_wc& completion, const Operation& operation) {
    ASSERT_EQ(completion.byte_len, operation.length);
    const bool immediate = operation.opcode != IBV_WR_SEND;
    ASSERT_EQ((completion.wc_flags & IBV_WC_WITH_IMM) != 0, immediate);
    if (immediate) {
      ASSERT_EQ(completion.imm_data, static_cast<uint32_t>(operation.id));
    }
    const Buffer& where = operation.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? remote_ : received_;
    ASSERT_TRUE(holds(where.bytes.data() + offset(operation.id), operation.id, operation.length));
  }

  void check_send(const Operation& operation) {
    const size_t slot = offset(operation.id);
    if (operation.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      ASSERT_EQ(load_word(local_.bytes.data() + slot), added_++)
          << "an addition done twice, or not";
    } else if (operation.opcode == IBV_WR_RDMA_READ) {
      ASSERT_TRUE(holds(local_.bytes.data() + slot, operation.id, operation.length));
    } else if (operation.opcode == IBV_WR_RDMA_WRITE) {
      ASSERT_TRUE(holds(remote_.bytes.data() + slot, operation.id, operation.length));
    }
  }

  Buffer local_;
  Buffer remote_;
  Buffer received_;
  Buffer counter_;
  std::deque<Operation> sends_;
  std::deque<Operation> receives_;
  uint64_t next_id_ = 0;
  uint64_t completed_ = 0;
  uint64_t added_ = 0;
  bool failing_ = false;
  uint32_t renewals_ = 0;
  std::array<bool, 2> failed_{};  // sends, receives
};

class RandomFaults : public SoftHca {
 protected:
  void inject(const std::string& command) {
    const std::string answer = soft_hca::control(command);
    ASSERT_EQ(answer.rfind("ok", 0), 0U) << command << ": " << answer;
    ++faults;
  }

  void strike() {
    const auto pick = [&](uint64_t below) { return random() % below; };
    Connection& victim = *connections[pick(kConnections)];
    const auto qp = [](const Pair& pair) { return " qp=" + std::to_string(pair->qp_num); };
    const std::string some = std::to_string(1 + pick(5));
    switch (pick(9)) {
      case 0:
        return inject("drop for=50ms every=" + some + " count=2" + qp(victim.requester));
      case 1:
        return inject("drop-response for=50ms every=" + some + " count=2" + qp(victim.responder));
      case 2:
        return inject("delay for=50ms by=200us every=" + some + " count=20");
      case 3:
        return inject("delay for=50ms by=1ms count=3" + qp(victim.responder));
      case 4:
        return inject("hold for=1ms" + qp(victim.requester));
      case 5:
        return inject("rnr for=1ms" + qp(victim.responder));
      case 6:
        return inject("pause for=500us");
      case 7:
        return inject("slow by=20us for=2ms");
      default:
        break;
    }
    // Both ends, so that both flush whatever they have.
    if (victim.failing()) return;
    victim.expect_errors();
    const bool with_error = pick(2) == 0;
    inject("fail" + qp(victim.requester) + (with_error ? " syndrome=0x15 vendor=0x81" : ""));
    inject("fail" + qp(victim.responder));
  }

  void drain() {
    const int got = ibv_poll_cq(cq.get(), static_cast<int>(polled.size()), polled.data());
    ASSERT_GE(got, 0);
    for (int i = 0; i < got; ++i) {
      const ibv_wc& completion = polled[static_cast<size_t>(i)];
      ASSERT_NO_FATAL_FAILURE(by_number[completion.qp_num]->take(completion));
      last_ns = now_ns();
    }
  }

  std::mt19937_64 random{seed};
  std::vector<std::unique_ptr<Connection>> connections;
  std::map<uint32_t, Connection*> by_number;
  std::array<ibv_wc, 64> polled{};
  uint64_t last_ns = 0;
  uint64_t faults = 0;
};

TEST_F(RandomFaults, EveryCompletionOnceInOrderWithItsData) {
  cq.reset(ibv_create_cq(context.get(), 4096, nullptr, nullptr, 0));
  for (size_t i = 0; i < kConnections; ++i) {
    connections.push_back(std::make_unique<Connection>(pd.get(), cq.get()));
    by_number[connections[i]->requester->qp_num] = connections[i].get();
    by_number[connections[i]->responder->qp_num] = connections[i].get();
  }
  uint64_t posted = 0;
  last_ns = now_ns();
  while (true) {
    bool idle = true;
    for (const auto& connection : connections) {
      for (; posted < operations && !connection->failing() && connection->has_room(); ++posted) {
        ASSERT_NO_FATAL_FAILURE(connection->post(&random));
        if (random() % 2000 == 0) {
          ASSERT_NO_FATAL_FAILURE(strike());
        }
      }
      if (connection->failing() && connection->idle()) {
        ASSERT_NO_FATAL_FAILURE(connection->renew());
      }
      idle = idle && connection->idle() && !connection->failing();
    }
    if (idle && posted == operations) break;
    ASSERT_NO_FATAL_FAILURE(drain());
    ASSERT_LT(now_ns(), last_ns + 60 * kSecond) << "a completion is missing";
  }
  ASSERT_EQ(soft_hca::control("clear"), "ok");
  expect_silence(cq.get(), 20 * kMillisecond);
  uint64_t completed = 0;
  for (const auto& connection : connections) completed += connection->completed();
  EXPECT_GE(completed, operations);
  std::printf("%llu operations, %llu completions, %llu faults, seed %llu\n",
              static_cast<unsigned long long>(posted), static_cast<unsigned long long>(completed),
              static_cast<unsigned long long>(faults), static_cast<unsigned long long>(seed));
  std::printf("%s\n", soft_hca::control("counters").c_str());
  connections.clear();
}

}  // namespace
}  // namespace pollgap

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--operations") pollgap::operations = std::stoull(argv[i + 1]);
    if (name == "--seed") pollgap::seed = std::stoull(argv[i + 1]);
  }
  pollgap::soft_hca::Options options;
  options.spin = false;
  options.real_time = true;
  const std::string problem = pollgap::soft_hca::start(options);
  if (!problem.empty()) {
    std::fprintf(stderr, "soft_hca_random_test: %s\n", problem.c_str());
    return 1;
  }
  return RUN_ALL_TESTS();
}
