// SPDX-License-Identifier: Apache-2.0
// A device's interrupt handler takes long on the polling core. The device is the disk under the
// scratch directory: a direct read makes it interrupt.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "tools/workload/bpf_object.h"
#include "tools/workload/disturbances/catalog.h"
#include "tools/workload/injector_thread.h"
#include "tools/workload/mapping.h"
#include "tools/workload/monotonic.h"
#include "tools/workload/scratch_file.h"
#include "workload_device_irq.skel.h"

namespace pollgap::workload {
namespace {

struct IrqLine {
  uint64_t count = 0;  // on all CPUs
  std::string action;
};

// The numbered interrupts of /proc/interrupts, whose lines are NUMBER: COUNT... CHIP HWIRQ ACTION.
std::map<int, IrqLine> read_interrupts() {
  std::map<int, IrqLine> lines;
  std::ifstream file("/proc/interrupts");
  std::string text;
  std::getline(file, text);  // CPU0 CPU1 ...
  std::stringstream header(text);
  size_t cpus = 0;
  for (std::string cpu; header >> cpu;) ++cpus;
  while (std::getline(file, text)) {
    std::stringstream stream(text);
    int number = 0;
    char colon = 0;
    if (!(stream >> number >> colon) || colon != ':') continue;
    IrqLine line;
    uint64_t count = 0;
    for (size_t cpu = 0; cpu < cpus && stream >> count; ++cpu) line.count += count;
    for (std::string word; stream >> word;) line.action = word;
    lines[number] = line;
  }
  return lines;
}

// The affinity of an interrupt; what it was is put back.
class IrqAffinity {
 public:
  ~IrqAffinity() { restore(); }
  Status move_to(int irq, int cpu) {
    const std::string directory = fmt::format("/proc/irq/{}/", irq);
    path_ = directory + "smp_affinity_list";
    before_ = read(path_);
    if (before_ == std::to_string(cpu)) {
      before_.clear();
      return std::nullopt;
    }
    if (write(std::to_string(cpu))) return std::nullopt;
    const int error = errno;
    before_.clear();
    // Managed interrupts cannot be moved; this one may be where it is wanted.
    if (read(directory + "effective_affinity_list") == std::to_string(cpu)) return std::nullopt;
    return Error{
        error == EACCES || error == EPERM ? ExitCode::no_privilege : ExitCode::kernel_lacks,
        fmt::format("cannot move irq {} to CPU {}: {}", irq, cpu, std::strerror(error))};
  }
  void restore() {
    if (!before_.empty()) write(before_);
    before_.clear();
  }

 private:
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
  }
  bool write(const std::string& text) const {
    std::ofstream file(path_);
    file << text << std::flush;
    return static_cast<bool>(file);
  }

  std::string path_;
  std::string before_;  // empty: nothing to put back
};

class DeviceIrq final : public Disturbance {
 public:
  using Disturbance::Disturbance;
  ~DeviceIrq() override { end(); }

  Status prepare(Environment& environment) override {
    other_cpu_ = environment.options.other_cpu;
    cpu_ = victim(environment).cpu();
    if (Status error = prepare_reads(environment.options.scratch_directory)) {
      return refusal(error->message, error->code);
    }
    if (Status error = find_irq()) return refusal(error->message, error->code);
    if (Status error = affinity_.move_to(irq_, cpu_)) {
      return refusal(error->message, error->code);
    }
    if (Status error = object_.load("BTF and tp_btf programs: kernel 5.8; bpf_loop: 5.17")) {
      return refusal(error->message, error->code);
    }
    object_->bss->irq_number = irq_;
    object_->bss->irq_cpu = static_cast<uint32_t>(cpu_);
    // Attached before any observer: so what it does comes before their end of the handler.
    if (Status error = object_.attach()) return refusal(error->message, error->code);
    return std::nullopt;
  }
  Status begin(uint64_t first_ns) override {
    thread_.start("pg-irq-device", other_cpu_, schedule(first_ns), [this](uint64_t) {
      object_->bss->armed_length_ns = spec().length_ns;
      read_once();
      object_->bss->armed_length_ns = 0;
      while (object_->bss->busy != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    return std::nullopt;
  }
  void end() override {
    thread_.stop();
    affinity_.restore();
    if (!object_) return;
    occurrences_ = object_.occurrences();
    object_.unload();
  }
  void report(const Environment& environment, TruthLog& log) override {
    for (const Occurrence& occurrence : occurrences_) {
      log_occurrence(environment, log, "hard_irq", occurrence,
                     {{"kind", "device"}, {"irq", irq_}, {"action", action_}});
    }
  }

 private:
  static constexpr size_t file_bytes = 1U << 20;
  static constexpr unsigned probing_reads = 32;

  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };

  Status prepare_reads(const std::string& directory) {
    Result<ScratchFile> made = ScratchFile::create(directory, file_bytes);
    if (!made) return made.error();
    file_ = std::move(*made);
    buffer_.reset(static_cast<char*>(std::aligned_alloc(page_bytes, page_bytes)));
    if (file_.direct_fd() >= 0 && read_once()) return std::nullopt;
    return Error{ExitCode::kernel_lacks,
                 fmt::format("no direct reads in {}: choose --scratch on a disk", directory)};
  }

  bool read_once() {
    offset_ = (offset_ + page_bytes) % file_bytes;
    return pread(file_.direct_fd(), buffer_.get(), page_bytes, static_cast<off_t>(offset_)) ==
           static_cast<ssize_t>(page_bytes);
  }

  // The interrupt that comes with the reads.
  Status find_irq() {
    const std::map<int, IrqLine> before = read_interrupts();
    for (unsigned i = 0; i < probing_reads; ++i) read_once();
    uint64_t most = probing_reads / 2;
    for (const auto& [number, line] : read_interrupts()) {
      const auto known = before.find(number);
      const uint64_t more = line.count - (known == before.end() ? 0 : known->second.count);
      if (more <= most) continue;
      most = more;
      irq_ = number;
      action_ = line.action;
    }
    if (irq_ >= 0) return std::nullopt;
    return Error{ExitCode::kernel_lacks,
                 "reading from the disk makes no interrupt: choose another --scratch"};
  }

  int cpu_ = 0;
  int other_cpu_ = 0;
  int irq_ = -1;
  std::string action_;
  ScratchFile file_;
  size_t offset_ = 0;
  std::unique_ptr<char, Free> buffer_;
  IrqAffinity affinity_;
  BpfObject<workload_device_irq> object_;
  InjectorThread thread_;
  std::vector<Occurrence> occurrences_;
};

}  // namespace

DisturbancePtr make_irq_device(const DisturbanceSpec& spec, unsigned index) {
  return std::make_unique<DeviceIrq>(spec, index);
}

}  // namespace pollgap::workload
