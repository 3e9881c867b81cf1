// SPDX-License-Identifier: Apache-2.0
// A poll site named by the user: --poll-site FILE:SYMBOL or FILE+0xOFFSET.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "probes/elf_image.h"
#include "probes/instruction_set.h"
#include "probes/memory_map.h"
#include "probes/result.h"

namespace pollgap {

struct PollSiteSpec {
  std::string text;                // as the user gave it
  std::string file;                // path, or last part of one, as mapped in the target
  std::string symbol;              // or
  std::optional<uint64_t> offset;  // in the file, as uprobes take it
};

// Error: usage.
Result<PollSiteSpec> parse_poll_site(std::string_view text);

// The mapped file that the site names. Errors: no_poll_function, where none or several match.
Result<const Mapping*> find_poll_site_file(const PollSiteSpec& spec, const MemoryMap& map);

// Address in the file of the instruction that the site names: a function's first, or, by offset,
// one within a function. Error: no_poll_function, where the file has no such function, or no
// instruction starts at the offset. `debug` may be null: the file's separate debug file.
Result<uint64_t> resolve_poll_site(const PollSiteSpec& spec, const ElfImage& image,
                                   const ElfImage* debug, const InstructionSet& set);

}  // namespace pollgap
