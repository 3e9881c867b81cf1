// SPDX-License-Identifier: Apache-2.0
// The polling thread's own kernel work: page faults and system calls.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/workload/cycle_counter.h"
#include "tools/workload/disturbances/catalog.h"
#include "tools/workload/file_descriptor.h"
#include "tools/workload/injector_thread.h"
#include "tools/workload/loop_disturbance.h"
#include "tools/workload/mapping.h"
#include "tools/workload/on_cpu.h"
#include "tools/workload/scratch_file.h"
#include "tools/workload/step_time.h"

namespace pollgap::workload {
namespace {

// Anonymous pages are given back and touched again.
class MinorFaults final : public LoopDisturbance {
 public:
  using LoopDisturbance::LoopDisturbance;

 protected:
  Status prepare_loop(Environment&) override {
    Result<Mapping> mapped = Mapping::anonymous(bytes);
    if (!mapped) return mapped.error();
    memory_ = std::move(*mapped);
    madvise(memory_.data(), bytes, MADV_NOHUGEPAGE);  // or a fault would take 2 MiB
    return std::nullopt;
  }
  void occur(Poller&, uint64_t until_ticks) override {
    uint64_t ran_ticks = 0;
    while (read_cycles() < until_ticks) {
      const uint64_t start = read_cycles();
      madvise(memory_.data(), bytes, MADV_DONTNEED);
      StepTime faults;
      ran_ticks += faults.step_start() - start;
      for (size_t at = 0; at < bytes && faults.step_start() < until_ticks; at += page_bytes) {
        const_cast<volatile char*>(memory_.data())[at] = 1;
        faults.step();
      }
      ran_ticks += faults.ran_ticks();
    }
    ran_ticks_.push_back(ran_ticks);
  }
  std::string cause() const override { return "self_kernel"; }
  nlohmann::ordered_json culprit(const Environment&) const override {
    return {{"kind", "page_fault"}, {"fault", "minor"}};
  }
  nlohmann::ordered_json facts(size_t i) const override {
    return {{"ran_ns", clock().ns_in(ran_ticks_[i])}};
  }

 private:
  static constexpr size_t bytes = 8U << 20;
  Mapping memory_;
  std::vector<uint64_t> ran_ticks_;
};

// Pages of a file, each of which must be read from the disk.
class MajorFaults final : public LoopDisturbance {
 public:
  using LoopDisturbance::LoopDisturbance;
  ~MajorFaults() override { end(); }

  Status begin(uint64_t first_ns) override {
    // Evicted in the middle between two occurrences, by another thread.
    evictor_.start("pg-evictor", other_cpu_, {first_ns + spec().period_ns / 2, spec().period_ns, 0},
                   [this](uint64_t) { evict(); });
    return LoopDisturbance::begin(first_ns);
  }
  void end() override {
    LoopDisturbance::end();
    evictor_.stop();
  }

 protected:
  Status prepare_loop(Environment& environment) override {
    other_cpu_ = environment.options.other_cpu;
    Result<ScratchFile> made = ScratchFile::create(environment.options.scratch_directory, bytes);
    if (!made) return refusal(made.error().message, made.error().code);
    file_ = std::move(*made);
    Result<Mapping> mapped = Mapping::file(file_.fd(), bytes);
    if (!mapped) return mapped.error();
    memory_ = std::move(*mapped);
    madvise(memory_.data(), bytes, MADV_RANDOM);  // no readahead
    evict();
    const uint64_t before = major_faults();
    for (size_t at = 0; at < 16 * page_bytes; at += page_bytes) touch(at);
    if (major_faults() - before < 8) {
      return refusal(fmt::format("pages of a file in {} are not read from a disk: choose --scratch",
                                 environment.options.scratch_directory));
    }
    evict();
    return std::nullopt;
  }
  void occur(Poller&, uint64_t until_ticks) override {
    const uint64_t before = major_faults();
    for (size_t at = 0; at < bytes && read_cycles() < until_ticks; at += page_bytes) touch(at);
    counts_.push_back(major_faults() - before);
  }
  std::string cause() const override { return "self_kernel"; }
  nlohmann::ordered_json culprit(const Environment&) const override {
    return {{"kind", "page_fault"}, {"fault", "major"}};
  }
  nlohmann::ordered_json facts(size_t i) const override { return {{"major_faults", counts_[i]}}; }

 private:
  static constexpr size_t bytes = 64U << 20;

  static uint64_t major_faults() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return static_cast<uint64_t>(usage.ru_majflt);
  }
  void touch(size_t at) { sum_ += static_cast<volatile const char*>(memory_.data())[at]; }
  void evict() {
    madvise(memory_.data(), bytes, MADV_DONTNEED);  // mapped pages are not evicted
    posix_fadvise(file_.fd(), 0, 0, POSIX_FADV_DONTNEED);
  }

  int other_cpu_ = 0;
  ScratchFile file_;
  Mapping memory_;
  int sum_ = 0;
  std::vector<uint64_t> counts_;
  InjectorThread evictor_;
};

// One long system call, or many short ones.
class SystemCalls final : public LoopDisturbance {
 public:
  SystemCalls(const DisturbanceSpec& spec, unsigned index)
      : LoopDisturbance(spec, index), long_(setting("variant", "long") == "long") {}

 protected:
  Status prepare_loop(Environment& environment) override {
    if (!long_) return std::nullopt;
    // As much randomness as takes that long to make; the kernel does it without sleeping.
    random_ = FileDescriptor(::open("/dev/urandom", O_RDONLY | O_CLOEXEC));
    if (!random_) return refusal(fmt::format("/dev/urandom: {}", std::strerror(errno)));
    return run_on_polling_core(victim(environment).cpu(), [this] { return calibrate(); });
  }
  void occur(Poller&, uint64_t until_ticks) override {
    if (long_) {
      last_read_ = ::read(random_.get(), buffer_.data(), buffer_.size());
      return;
    }
    StepTime calls;
    while (calls.step_start() < until_ticks) {
      syscall(SYS_getppid);
      calls.step();
    }
    ran_ticks_.push_back(calls.ran_ticks());
  }
  std::string cause() const override { return "self_kernel"; }
  nlohmann::ordered_json culprit(const Environment&) const override {
    return {{"kind", "syscall"}, {"syscall", long_ ? "read" : "getppid"}};
  }
  nlohmann::ordered_json facts(size_t i) const override {
    if (long_) return nullptr;
    return {{"ran_ns", clock().ns_in(ran_ticks_[i])}};
  }

 private:
  static constexpr ssize_t sample_bytes = 64 << 10;
  static constexpr int samples = 50;

  Status calibrate() {
    std::vector<char> sample(sample_bytes, 1);
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < samples; ++i) {
      const uint64_t start = read_cycles();
      if (::read(random_.get(), sample.data(), sample_bytes) != sample_bytes) {
        return refusal("a read of /dev/urandom is short");
      }
      least = std::min(least, read_cycles() - start);
    }
    buffer_.assign(sample_bytes * length_ticks() / least, 1);
    return std::nullopt;
  }

  const bool long_;
  FileDescriptor random_;
  std::vector<char> buffer_;
  ssize_t last_read_ = 0;
  std::vector<uint64_t> ran_ticks_;  // of a storm's occurrences
};

}  // namespace

DisturbancePtr make_minor_faults(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<MinorFaults>(spec, index);
}
DisturbancePtr make_major_faults(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<MajorFaults>(spec, index);
}
DisturbancePtr make_syscalls(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<SystemCalls>(spec, index);
}

}  // namespace pollgap::workload
