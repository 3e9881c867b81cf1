// SPDX-License-Identifier: Apache-2.0
#include "probes/instruction_set.h"

#include <elf.h>
#include <sys/utsname.h>

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "probes/instruction_set_x86_64.h"

namespace pollgap {

KernelVersion running_kernel() {
  utsname names{};
  KernelVersion version;
  // NOLINTNEXTLINE(cert-err34-c): a release that is no number leaves 0.0
  if (uname(&names) == 0) (void)sscanf(names.release, "%d.%d", &version.major, &version.minor);
  return version;
}

const InstructionSet* instruction_set_for(uint16_t elf_machine, KernelVersion kernel) {
  if (elf_machine != EM_X86_64) return nullptr;
  static std::mutex mutex;
  static std::map<std::pair<int, int>, std::unique_ptr<InstructionSet>> sets;
  const std::scoped_lock lock(mutex);
  auto& set = sets[{kernel.major, kernel.minor}];
  if (!set) set = make_x86_64(kernel);
  return set.get();
}

}  // namespace pollgap
