// SPDX-License-Identifier: Apache-2.0
// Everything that discovery asks of an ELF file, on files of any content.
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "probes/elf_image.h"
#include "probes/instruction_choice.h"
#include "probes/instruction_set.h"
#include "probes/poll_site.h"
#include "probes/static_ops.h"

namespace pollgap {
namespace {

void use(const ElfImage& image) {
  const InstructionSet& set = *instruction_set_for(EM_X86_64);
  uint64_t asked = 0;
  for (const ElfSymbol& symbol : image.functions()) {
    if (++asked > 64) break;
    (void)image.function(symbol.name);
    (void)image.function_at(symbol.address);
    const auto extent = image.extent_of(symbol.address);
    if (!extent) continue;
    if (extent->end <= extent->start) abort();
    const auto code = image.read(extent->start, extent->end - extent->start);
    const auto choice = choose_entry(set, code, extent->start);
    if (choice && choice->offset >= code.size()) abort();
  }
  for (const uint64_t offset : {uint64_t{0}, uint64_t{0x1000}, UINT64_MAX}) {
    PollSiteSpec spec{"f+0x0", "f", "", offset};
    (void)resolve_poll_site(spec, image, nullptr, set);
  }
  for (const VerbsVersion version : {VerbsVersion{34, 44}, VerbsVersion{}}) {
    (void)find_static_ops(image, set, version);
  }
  (void)image.packed_relocations();
}

}  // namespace
}  // namespace pollgap

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  pollgap::FileDescriptor fd(memfd_create("elf", MFD_CLOEXEC));
  if (!fd || write(fd.get(), data, bytes) != static_cast<ssize_t>(bytes)) return 0;
  const auto image = pollgap::ElfImage::open(std::move(fd), "fuzz");
  if (image) pollgap::use(*image);
  return 0;
}
