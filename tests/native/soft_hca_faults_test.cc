// SPDX-License-Identifier: Apache-2.0
// Timers and injected faults: what a program sees of each, and what the counters say.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/native/soft_hca_verbs.h"
#include "tools/soft-hca/soft_hca.h"

namespace pollgap {
namespace {

// A machine that is busy makes anything late. Nothing may ever be early, and of so many tries one
// has to be in time.
constexpr int kTries = 10;

uint64_t counter(const std::string& name) {
  const std::string all = soft_hca::control("counters");
  const size_t at = all.find("\n" + name + "=");
  if (at == std::string::npos) {
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }
  return std::stoull(all.substr(at + name.size() + 2));
}

// How long a thread of this process has been runnable without running, which the kernel adds up
// when the thread gets the CPU (the kernel's Documentation/scheduler/sched-stats.rst); 0 where it
// does not.
class RunDelay {
 public:
  explicit RunDelay(const std::filesystem::path& task) : file_(task / "schedstat") {}
  uint64_t total_ns() {
    uint64_t ran = 0;
    uint64_t waited = 0;
    file_.clear();
    file_.seekg(0);
    file_ >> ran >> waited;
    return waited;
  }

 private:
  std::ifstream file_;
};

std::filesystem::path device_thread() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name == "soft-hca") return task.path();
  }
  ADD_FAILURE() << "no device thread";
  return "/proc/thread-self";
}

class Faults : public SoftHca {
 protected:
  void TearDown() override {
    EXPECT_EQ(soft_hca::control("clear"), "ok");
    SoftHca::TearDown();
  }
  // Returns the answer, which must be good.
  std::string inject(const std::string& command) {
    std::string answer = soft_hca::control(command);
    EXPECT_EQ(answer.rfind("ok", 0), 0U) << command << ": " << answer;
    return answer;
  }
  std::string of(const Pair& pair) const { return " qp=" + std::to_string(pair->qp_num); }

  // From the post of a write to its completion.
  uint64_t time_of_write(ibv_wc_status expected = IBV_WC_SUCCESS) {
    const uint64_t waited_before = waited_ns();
    const uint64_t before = now_ns();
    EXPECT_EQ(post_send(left.get(), write(1, 0, 64, 8)), 0);
    EXPECT_EQ(wait_for(cq.get(), 1)[0].status, expected);
    const uint64_t took = now_ns() - before;
    without_cpu_ns = waited_ns() - waited_before;
    return took;
  }
  // How much later than expected, besides the time for which a thread wanted a CPU.
  uint64_t unexcused(uint64_t time_ns, uint64_t expected_ns) const {
    EXPECT_GE(time_ns, expected_ns);
    const uint64_t late = time_ns - std::min(time_ns, expected_ns);
    return late - std::min(late, without_cpu_ns);
  }
  // By how much a CQE that is held back by 20 ms is late, besides the time for which the device
  // thread wanted a CPU.
  uint64_t lateness_of_hold(std::ifstream* log);

  uint64_t without_cpu_ns = 0;  // during the last time_of_write()

 private:
  uint64_t waited_ns() { return device_.total_ns() + poller_.total_ns(); }
  RunDelay device_{device_thread()};
  RunDelay poller_{"/proc/thread-self"};
};

// The next line of the log about fault `id`, or "" if there is none within ten seconds.
std::string await_line(std::ifstream* log, const std::string& id) {
  std::string line;
  for (const uint64_t end = now_ns() + 10 * kSecond; now_ns() < end; log->clear()) {
    while (std::getline(*log, line)) {
      if (line.find("\"id\":" + id + ",") != std::string::npos) return line;
    }
  }
  return "";
}

uint64_t log_value(const std::string& line, const std::string& name) {
  return std::stoull(line.substr(line.find("\"" + name + "\":") + name.size() + 3));
}

// The fault log says when the CQE was written. What is taken off its lateness is only the time for
// which the kernel says that the device thread wanted a CPU and did not have it, since just before
// the CQE was due.
uint64_t Faults::lateness_of_hold(std::ifstream* log) {
  const std::string answer = inject("delay by=20ms count=1" + of(left));
  const uint64_t due = now_ns() + 20 * kMillisecond;  // at the earliest
  EXPECT_EQ(post_send(left.get(), write(1, 0, 64, 8)), 0);
  uint64_t before = 0;
  for (uint64_t look = device_.total_ns(); now_ns() < due; look = device_.total_ns()) before = look;
  wait_for(cq.get(), 1);
  const uint64_t arrived = now_ns();
  const uint64_t waited = device_.total_ns() - before;
  inject("clear");
  const std::string line = await_line(log, answer.substr(3, answer.find(' ', 3) - 3));
  if (line.empty()) {
    ADD_FAILURE() << "the log has nothing about " << answer;
    return 0;
  }
  const uint64_t written = log_value(line, "end_mono_ns");
  const uint64_t late = written - log_value(line, "start_mono_ns") - 20 * kMillisecond;
  const uint64_t excused = std::min(late, waited);
  EXPECT_LE(written, arrived);
  std::printf("held back by 20 ms: written %llu ns late, %llu of them without a CPU\n",
              static_cast<unsigned long long>(late), static_cast<unsigned long long>(excused));
  return late - excused;
}

// Two of twenty may fall to what no thread's time shows: interrupts, and a hypervisor that runs
// something else. Where more do, twenty others are taken.
TEST_F(Faults, ACqeHeldBackArrivesWithin200MicrosecondsOfItsTime) {
  make_connection();
  std::ifstream log(soft_hca_log());
  uint64_t ninth_decile = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < kTries && ninth_decile > 200'000; ++i) {
    std::vector<uint64_t> lateness(20);
    for (uint64_t& late : lateness) late = lateness_of_hold(&log);
    std::sort(lateness.begin(), lateness.end());
    ninth_decile = lateness[17];
  }
  EXPECT_LE(ninth_decile, 200'000U);
}

TEST_F(Faults, ADroppedPacketComesAfterTheTimeout) {
  make_connection();
  const uint64_t timeout = uint64_t{4096} << 14;  // 67.1 ms
  const uint64_t timeouts = counter("local_ack_timeout_err");
  uint64_t best = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < kTries; ++i) {
    inject("drop count=1" + of(left));
    const uint64_t took = time_of_write();
    best = std::min(best, unexcused(took, timeout));
    inject("clear");
  }
  EXPECT_EQ(counter("local_ack_timeout_err"), timeouts + kTries);
  std::printf("dropped packet: %llu ns past its timeout at best\n",
              static_cast<unsigned long long>(best));
  EXPECT_LE(best, 2 * kMillisecond);
}

TEST_F(Faults, EightTriesAndThenTheRetriesAreExceeded) {
  make_connection();
  const uint64_t timeouts = counter("local_ack_timeout_err");
  const uint64_t discards = counter("port_xmit_discards");
  inject("drop" + of(left));
  const uint64_t took = time_of_write(IBV_WC_RETRY_EXC_ERR);
  EXPECT_LE(unexcused(took, 8 * (uint64_t{4096} << 14)), 200 * kMillisecond);
  EXPECT_EQ(counter("local_ack_timeout_err"), timeouts + 8);
  EXPECT_EQ(counter("port_xmit_discards"), discards + 8);
}

TEST_F(Faults, ReceiverNotReadyWaitsFollowTheTable) {
  struct Row {
    uint8_t code;
    uint64_t wait_ns;
  };
  make_connection();
  for (const Row& row : {Row{1, 10'000}, Row{7, 120'000}, Row{12, 640'000}, Row{14, 1'280'000},
                         Row{18, 5'120'000}, Row{22, 20'480'000}, Row{27, 122'880'000}}) {
    ibv_qp_attr attributes{};
    attributes.min_rnr_timer = row.code;
    ASSERT_EQ(ibv_modify_qp(right.get(), &attributes, IBV_QP_MIN_RNR_TIMER), 0);
    uint64_t best = std::numeric_limits<uint64_t>::max();
    for (int i = 0; i < kTries; ++i) {
      ASSERT_EQ(post_receive(right.get(), 1, buffer->sge(64, 8)), 0);
      const std::string answer = inject("rnr for=10s" + of(right));
      const uint64_t naks = counter("rnr_nak_retry_err");
      const uint64_t refused = counter("out_of_buffer");
      const uint64_t before = now_ns();
      ASSERT_EQ(post_send(left.get(), {IBV_WR_SEND, 2, buffer->sge(0, 8)}), 0);
      while (counter("rnr_nak_retry_err") == naks && now_ns() < before + 10 * kSecond) {
      }
      inject("clear");
      wait_for(cq.get(), 2);
      const uint64_t took = now_ns() - before;
      const uint64_t waits = counter("rnr_nak_retry_err") - naks;
      ASSERT_EQ(counter("out_of_buffer") - refused, waits);
      ASSERT_GE(took, waits * row.wait_ns) << "code " << int{row.code};
      best = std::min(best, took - waits * row.wait_ns);
    }
    EXPECT_LE(best, 20 * kMillisecond) << "code " << int{row.code};
  }
}

// In a stream the responder notices a gap, and the requester need not wait for its timer.
TEST_F(Faults, ALossInAStreamIsNoticedAsAGap) {
  make_connection();
  const uint64_t gaps = counter("out_of_sequence");
  const uint64_t naks = counter("packet_seq_err");
  soft_hca::set_completion_delay(5 * kMillisecond);  // so that all are sent together
  inject("drop every=4 count=1" + of(left));
  for (uint64_t id = 0; id < 10; ++id) {
    buffer->bytes[id] = static_cast<uint8_t>(200 + id);
    ASSERT_EQ(post_send(left.get(), write(id, id, 1000 + id, 1)), 0);
  }
  uint64_t next = 0;
  for (const ibv_wc& completion : wait_for(cq.get(), 10)) {
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.wr_id, next++);
  }
  EXPECT_EQ(std::memcmp(&buffer->bytes[0], &buffer->bytes[1000], 10), 0);
  EXPECT_EQ(counter("out_of_sequence"), gaps + 1);
  EXPECT_EQ(counter("packet_seq_err"), naks + 1);
}

// The operation was done, its answer was lost: it must not be done again.
TEST_F(Faults, ALostAnswerDoesNotRepeatAnAtomicOperation) {
  PairOptions options;
  options.timeout = 10;
  options.access = kAllRemote | IBV_ACCESS_REMOTE_ATOMIC;
  make_connection(options);
  Buffer memory(pd.get(), 4096, kAllRemote | IBV_ACCESS_REMOTE_ATOMIC);
  const uint64_t duplicates = counter("duplicate_request");
  for (uint64_t i = 0; i < 20; ++i) {
    inject("drop-response count=1" + of(right));
    ibv_sge sge = memory.sge(8, 8);
    ibv_send_wr request{};
    ibv_send_wr* bad = nullptr;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.atomic.remote_addr = reinterpret_cast<uint64_t>(memory.bytes.data());
    request.wr.atomic.rkey = memory.region->rkey;
    request.wr.atomic.compare_add = 1;
    ASSERT_EQ(ibv_post_send(left.get(), &request, &bad), 0);
    ASSERT_EQ(wait_for(cq.get(), 1)[0].status, IBV_WC_SUCCESS);
    uint64_t old = 0;
    std::memcpy(&old, &memory.bytes[8], sizeof(old));
    ASSERT_EQ(old, i);
    inject("clear");
  }
  EXPECT_GE(counter("duplicate_request"), duplicates + 20);
}

// A read's response is missing when the acknowledgement of the write behind it comes.
TEST_F(Faults, AMissingReadResponseIsAnImpliedNak) {
  make_connection();
  const uint64_t implied = counter("implied_nak_seq_err");
  std::memset(&buffer->bytes[200'000], 0x5a, 5000);
  soft_hca::set_completion_delay(5 * kMillisecond);
  inject("drop-response count=1" + of(right));
  Send read = write(1, 0, 200'000, 5000);
  read.opcode = IBV_WR_RDMA_READ;
  ASSERT_EQ(post_send(left.get(), read), 0);
  ASSERT_EQ(post_send(left.get(), write(2, 300'000, 300'100, 8)), 0);
  const std::vector<ibv_wc> got = wait_for(cq.get(), 2);
  EXPECT_EQ(got[0].wr_id, 1U);
  EXPECT_EQ(got[1].wr_id, 2U);
  EXPECT_EQ(std::memcmp(&buffer->bytes[0], &buffer->bytes[200'000], 5000), 0);
  EXPECT_EQ(counter("implied_nak_seq_err"), implied + 1);
}

TEST_F(Faults, AHeldQueuePairDoesNotHoldAnotherOnTheSameCq) {
  make_connection();
  Pair other_left = make_pair_end(pd.get(), cq.get(), cq.get(), {});
  Pair other_right = make_pair_end(pd.get(), cq.get(), cq.get(), {});
  connect(other_left.get(), other_right.get());
  inject("hold for=600s" + of(left));
  ASSERT_EQ(post_send(left.get(), write(1, 0, 64, 8)), 0);
  ASSERT_EQ(post_send(left.get(), write(2, 0, 64, 8)), 0);
  for (uint64_t id = 3; id < 6; ++id) {
    ASSERT_EQ(post_send(other_left.get(), write(id, 0, 64, 8)), 0);
    ASSERT_EQ(wait_for(cq.get(), 1)[0].wr_id, id);
  }
  expect_silence(cq.get(), 2 * kMillisecond);
  inject("clear");
  const std::vector<ibv_wc> got = wait_for(cq.get(), 2);
  EXPECT_EQ(got[0].wr_id, 1U);
  EXPECT_EQ(got[1].wr_id, 2U);
}

TEST_F(Faults, EveryThirdCqeIsLateAndOrderIsKept) {
  make_connection();
  inject("delay by=10ms every=3" + of(left));
  for (uint64_t id = 1; id <= 9; ++id) {
    const uint64_t before = now_ns();
    ASSERT_EQ(post_send(left.get(), write(id, 0, 64, 8)), 0);
    ASSERT_EQ(wait_for(cq.get(), 1)[0].wr_id, id);
    if (id % 3 == 0) {
      EXPECT_GE(now_ns() - before, 10 * kMillisecond) << id;
    }
  }
  for (uint64_t id = 1; id <= 30; ++id) ASSERT_EQ(post_send(left.get(), write(id, 0, 64, 8)), 0);
  uint64_t next = 1;
  for (const ibv_wc& completion : wait_for(cq.get(), 30)) ASSERT_EQ(completion.wr_id, next++);
}

TEST_F(Faults, AResetQueuePairsHeldCqesAreForgotten) {
  make_connection();
  inject("hold for=50ms" + of(left));
  ASSERT_EQ(post_send(left.get(), write(1, 0, 64, 8)), 0);
  let_the_adapter_look();
  ASSERT_EQ(move_to(left.get(), IBV_QPS_RESET), 0);
  expect_silence(cq.get(), 80 * kMillisecond);
}

TEST_F(Faults, NothingMovesWhileThePortIsPaused) {
  make_connection();
  inject("pause for=30ms");
  const uint64_t took = time_of_write();
  EXPECT_GE(took, 29 * kMillisecond) << "the pause had begun just before";
  EXPECT_GT(counter("port_xmit_wait"), 0U);
}

TEST_F(Faults, ASlowAdapterBeginsLate) {
  make_connection();
  inject("slow by=5ms for=10s");
  for (int i = 0; i < 5; ++i) EXPECT_GE(time_of_write(), 5 * kMillisecond);
}

TEST_F(Faults, AnErrorCompletionOfAnySyndromeComesBeforeTheFlush) {
  struct Row {
    const char* syndrome;
    ibv_wc_status status;
  };
  for (const Row& row : {Row{"0x01", IBV_WC_LOC_LEN_ERR}, Row{"0x02", IBV_WC_LOC_QP_OP_ERR},
                         Row{"0x04", IBV_WC_LOC_PROT_ERR}, Row{"0x10", IBV_WC_BAD_RESP_ERR},
                         Row{"0x11", IBV_WC_LOC_ACCESS_ERR}, Row{"0x12", IBV_WC_REM_INV_REQ_ERR},
                         Row{"0x13", IBV_WC_REM_ACCESS_ERR}, Row{"0x14", IBV_WC_REM_OP_ERR},
                         Row{"0x15", IBV_WC_RETRY_EXC_ERR}, Row{"0x16", IBV_WC_RNR_RETRY_EXC_ERR},
                         Row{"0x22", IBV_WC_REM_ABORT_ERR}}) {
    left.reset();
    right.reset();
    cq.reset();
    make_connection();
    soft_hca::set_completion_delay(10 * kSecond);
    for (uint64_t id = 0; id < 3; ++id) {
      ASSERT_EQ(post_send(left.get(), write(id, 0, 64, 8)), 0);
    }
    inject("fail vendor=0x33 syndrome=" + std::string(row.syndrome) + of(left));
    const std::vector<ibv_wc> got = wait_for(cq.get(), 3);
    EXPECT_EQ(got[0].status, row.status) << row.syndrome;
    EXPECT_EQ(got[0].vendor_err, 0x33U);
    EXPECT_EQ(got[1].status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(got[2].status, IBV_WC_WR_FLUSH_ERR);
    soft_hca::set_completion_delay(0);
  }
}

TEST_F(Faults, AFatalErrorIsTold) {
  make_connection();
  inject("fatal" + of(left));
  const ibv_async_event event = take_async_event();
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(event.element.qp, left.get());
  EXPECT_EQ(state_of(left.get()), IBV_QPS_ERR);
}

// The CQ's number is in its queue pairs' lines of the list.
TEST_F(Faults, AnOverrunFailsTheCqAndThenItsQueuePairs) {
  make_connection();
  const std::string list = soft_hca::control("list");
  const size_t at = list.find("send_cq=");
  ASSERT_NE(at, std::string::npos) << list;
  const std::string number = std::to_string(std::stoul(list.substr(at + 8)));
  inject("overrun cq=" + number);
  ibv_async_event event = take_async_event();
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, cq.get());
  for (int i = 0; i < 2; ++i) {
    event = take_async_event();
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_FATAL);
  }
  EXPECT_EQ(state_of(left.get()), IBV_QPS_ERR);
  EXPECT_EQ(state_of(right.get()), IBV_QPS_ERR);
  EXPECT_EQ(soft_hca::control("overrun cq=" + number).rfind("error", 0), 0U) << "it has failed";
}

TEST_F(Faults, ACommandThatMakesNoSenseIsRefused) {
  make_connection();
  for (const char* command : {"",
                              "nonsense",
                              "hold",
                              "hold for=20",
                              "hold for=-1ms",
                              "hold for=20ms qp=1",
                              "hold for=20ms cq=99999",
                              "hold for=20ms every=2",
                              "delay for=1s",
                              "delay by=1ms every=0",
                              "drop qp=",
                              "drop qp=0x",
                              "drop count=99999999999999999999",
                              "pause",
                              "pause for=1s qp=2",
                              "slow for=1s",
                              "fail",
                              "fail qp=77",
                              "fail qp=1 syndrome=0x100",
                              "overrun",
                              "fatal qp=3",
                              "clear id=12345",
                              "list all=1",
                              "counters x",
                              "drop every=2 every=3",
                              "drop =3"}) {
    EXPECT_EQ(soft_hca::control(command).rfind("error", 0), 0U) << command;
  }
  const std::string list = soft_hca::control("list");
  EXPECT_EQ(list.find("fault="), std::string::npos) << list;
  for (int i = 0; i < 64; ++i) inject("drop every=1000000");
  EXPECT_EQ(soft_hca::control("drop").rfind("error", 0), 0U) << "there are too many";
}

}  // namespace
}  // namespace pollgap
