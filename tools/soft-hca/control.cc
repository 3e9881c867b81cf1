// SPDX-License-Identifier: Apache-2.0
#include "tools/soft-hca/control.h"

#include <unistd.h>

#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <sstream>

#include "tools/soft-hca/clock.h"

namespace pollgap::soft_hca {
namespace {

using Arguments = std::map<std::string, std::string>;

// A number, decimal or 0x...; nothing after it.
std::optional<uint64_t> to_number(std::string_view text) {
  const bool hexadecimal = text.substr(0, 2) == "0x";
  if (hexadecimal) text.remove_prefix(2);
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, hexadecimal ? 16 : 10);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A number with ns, us, ms or s behind it.
std::optional<uint64_t> to_duration(const std::string& text) {
  const size_t digits = text.find_first_not_of("0123456789");
  if (digits == std::string::npos || digits == 0) return std::nullopt;
  const std::optional<uint64_t> count = to_number(text.substr(0, digits));
  const std::string unit = text.substr(digits);
  uint64_t factor = 0;
  if (unit == "ns") factor = 1;
  if (unit == "us") factor = 1'000;
  if (unit == "ms") factor = 1'000'000;
  if (unit == "s") factor = 1'000'000'000;
  constexpr uint64_t kLongest = uint64_t{1} << 60;
  if (!count || factor == 0 || *count > kLongest / factor) return std::nullopt;
  return *count * factor;
}

std::string error(const std::string& what) { return "error: " + what; }

// Takes arguments out one by one; what is wrong with them, or left over, is said at the end.
class Reader {
 public:
  explicit Reader(Arguments arguments) : arguments_(std::move(arguments)) {}

  template <typename T>
  void number(const char* name, T* value, bool required = false) {
    read(name, required, "a number", [&](const std::string& text) {
      const std::optional<uint64_t> parsed = to_number(text);
      if (!parsed || *parsed > std::numeric_limits<T>::max()) return false;
      *value = static_cast<T>(*parsed);
      return true;
    });
  }
  void duration(const char* name, uint64_t* value, bool required = false) {
    read(name, required, "a time like 20ms", [&](const std::string& text) {
      const std::optional<uint64_t> parsed = to_duration(text);
      if (parsed) *value = *parsed;
      return parsed.has_value();
    });
  }
  std::string problem() const {
    if (!problem_.empty() || arguments_.empty()) return problem_;
    return "unknown argument '" + arguments_.begin()->first + "'";
  }

 private:
  template <typename Parse>
  void read(const char* name, bool required, const char* what, Parse parse) {
    const auto at = arguments_.find(name);
    if (at == arguments_.end()) {
      if (required && problem_.empty()) problem_ = std::string("needs ") + name + "=, " + what;
      return;
    }
    if (!parse(at->second) && problem_.empty()) {
      problem_ = std::string(name) + "=" + at->second + " is not " + what;
    }
    arguments_.erase(at);
  }

  Arguments arguments_;
  std::string problem_;
};

struct Injection {
  const char* name;
  FaultKind kind;
  bool lasts;   // needs for=
  bool delays;  // needs by=
};
constexpr Injection kInjections[] = {
    {"hold", FaultKind::hold, true, false},
    {"delay", FaultKind::delay, false, true},
    {"drop", FaultKind::drop_request, false, false},
    {"drop-response", FaultKind::drop_response, false, false},
    {"rnr", FaultKind::rnr, true, false},
    {"pause", FaultKind::pause, true, false},
    {"slow", FaultKind::slow, true, true},
};

bool per_packet(FaultKind kind) {
  return kind == FaultKind::delay || kind == FaultKind::drop_request ||
         kind == FaultKind::drop_response;
}

std::string inject(DeviceThread* device, const Injection& injection, Reader* reader) {
  Fault fault;
  fault.kind = injection.kind;
  uint64_t lasts = kForEver;
  reader->duration("for", &lasts, injection.lasts);
  if (injection.delays) reader->duration("by", &fault.delay_ns, true);
  if (fault.kind != FaultKind::pause && fault.kind != FaultKind::slow) {
    reader->number("qp", &fault.queue_pair);
  }
  if (fault.kind == FaultKind::hold || fault.kind == FaultKind::delay) {
    reader->number("cq", &fault.cq);
  }
  if (per_packet(fault.kind)) {
    reader->number("every", &fault.every);
    reader->number("count", &fault.left);
  }
  if (!reader->problem().empty()) return error(reader->problem());
  if (fault.every == 0) return error("every=0 is never");
  uint32_t id = 0;
  bool known = true;
  const bool ran = device->run([&](Device* adapter) {
    known = (fault.queue_pair == 0 || adapter->find(fault.queue_pair) != nullptr) &&
            (fault.cq == 0 || adapter->has_cq(fault.cq));
    if (!known) return;
    fault.start_ns = now_ns();
    if (lasts != kForEver) fault.end_ns = fault.start_ns + lasts;
    id = adapter->faults().add(fault);
  });
  if (!ran) return error("the adapter has stopped");
  if (!known) return error("there is no such queue pair or CQ; see list");
  if (id == 0) return error("too many faults are in force; see clear");
  return "ok " + std::to_string(id) + " start_ns=" + std::to_string(fault.start_ns) +
         (fault.end_ns == kForEver ? "" : " end_ns=" + std::to_string(fault.end_ns));
}

// The faults that happen at once: each is an event of its own.
std::string strike(DeviceThread* device, FaultKind kind, Reader* reader) {
  uint32_t queue_pair = 0;
  uint32_t cq = 0;
  uint8_t syndrome = 0;
  uint8_t vendor = 0;
  if (kind == FaultKind::overrun) {
    reader->number("cq", &cq, true);
  } else {
    reader->number("qp", &queue_pair, true);
  }
  if (kind == FaultKind::fail) {
    reader->number("syndrome", &syndrome);
    reader->number("vendor", &vendor);
  }
  if (!reader->problem().empty()) return error(reader->problem());
  int64_t count = -1;
  uint64_t when = 0;
  const bool ran = device->run([&](Device* adapter) {
    when = now_ns();
    switch (kind) {
      case FaultKind::overrun:
        count = adapter->overrun(cq) ? 1 : -1;
        break;
      case FaultKind::fatal:
        count = adapter->fail_fatally(queue_pair) ? 1 : -1;
        break;
      default:
        count = adapter->fail(queue_pair, syndrome, vendor);
        break;
    }
    if (count < 0) return;
    adapter->faults().log().add(
        {kind, 0, queue_pair, cq, when, now_ns(), static_cast<uint64_t>(count)});
  });
  if (!ran) return error("the adapter has stopped");
  if (count < 0) return error("there is no such queue pair or CQ, or it cannot fail; see list");
  return "ok count=" + std::to_string(count) + " start_ns=" + std::to_string(when);
}

std::string clear(DeviceThread* device, Reader* reader) {
  uint32_t id = 0;
  reader->number("id", &id);
  if (!reader->problem().empty()) return error(reader->problem());
  bool found = true;
  const bool ran =
      device->run([&](Device* adapter) { found = adapter->clear_fault(id, now_ns()); });
  if (!ran) return error("the adapter has stopped");
  return found ? "ok" : error("there is no fault " + std::to_string(id));
}

std::string list(DeviceThread* device, Reader* reader) {
  if (!reader->problem().empty()) return error(reader->problem());
  std::ostringstream out;
  out << "ok pid=" << getpid();
  const bool ran = device->run([&](Device* adapter) {
    adapter->each_queue_pair([&](const QueuePair& qp) {
      out << "\nqp=" << qp.number() << " state=" << static_cast<int>(qp.state())
          << " type=" << (qp.datagrams() ? "UD" : "RC")
          << " send_cq=" << qp.config().send_cq->number()
          << " recv_cq=" << qp.config().receive_cq->number()
          << " dest_qp=" << qp.attributes().dest_qp_num;
    });
    adapter->faults().each([&](const Fault& fault) {
      out << "\nfault=" << fault.id << " " << name_of(fault.kind) << " qp=" << fault.queue_pair
          << " cq=" << fault.cq << " happened=" << fault.happened << " start_ns=" << fault.start_ns;
      if (fault.end_ns != kForEver) out << " end_ns=" << fault.end_ns;
    });
  });
  return ran ? out.str() : error("the adapter has stopped");
}

std::string show_counters(DeviceThread* device, Reader* reader) {
  if (!reader->problem().empty()) return error(reader->problem());
  std::string answer = "ok";
  for (size_t i = 0; i < kCounters; ++i) {
    const char* name = std::strrchr(kCounterFiles[i].path, '/') + 1;
    const uint64_t value = device->counters().get(static_cast<Counter>(i));
    answer += std::string("\n") + name + "=" + std::to_string(value / kCounterFiles[i].divisor);
  }
  return answer;
}

}  // namespace

std::string execute_control(DeviceThread* device, const std::string& command) {
  std::istringstream words(command);
  std::string verb;
  words >> verb;
  Arguments arguments;
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      return error("'" + word + "' is not of the form name=value");
    }
    if (!arguments.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
      return error("'" + word.substr(0, equals) + "' is given twice");
    }
  }
  Reader reader(std::move(arguments));
  for (const Injection& injection : kInjections) {
    if (verb == injection.name) return inject(device, injection, &reader);
  }
  if (verb == "fail") return strike(device, FaultKind::fail, &reader);
  if (verb == "fatal") return strike(device, FaultKind::fatal, &reader);
  if (verb == "overrun") return strike(device, FaultKind::overrun, &reader);
  if (verb == "clear") return clear(device, &reader);
  if (verb == "list") return list(device, &reader);
  if (verb == "counters") return show_counters(device, &reader);
  return error("unknown command '" + verb + "'");
}

std::string to_json(const FaultEvent& event) {
  std::ostringstream out;
  out << "{\"fault\":\"" << name_of(event.kind) << "\",\"id\":" << event.fault
      << ",\"pid\":" << getpid() << ",\"qp\":" << event.queue_pair << ",\"cq\":" << event.cq
      << ",\"start_mono_ns\":" << event.start_ns << ",\"end_mono_ns\":" << event.end_ns
      << ",\"count\":" << event.count << "}";
  return out.str();
}

}  // namespace pollgap::soft_hca
