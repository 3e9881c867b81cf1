// SPDX-License-Identifier: Apache-2.0
#include "probes/poll_site.h"

#include <charconv>
#include <vector>

#include "probes/instruction_choice.h"

namespace pollgap {
namespace {

Error malformed(std::string_view text) {
  return {ExitCode::usage,
          "--poll-site " + std::string(text) +
              ": give FILE:SYMBOL or FILE+0xOFFSET, for example libucp.so.0:ucp_worker_progress"};
}

std::optional<uint64_t> hex_number(std::string_view text) {
  if (!text.starts_with("0x") && !text.starts_with("0X")) return std::nullopt;
  text.remove_prefix(2);
  uint64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return value;
}

bool matches(const Mapping& mapping, const std::string& file) {
  if (!mapping.is_file()) return false;
  return mapping.path == file ||
         (file.find('/') == std::string::npos && mapping.path.ends_with("/" + file));
}

Error unresolved(const PollSiteSpec& spec, const std::string& reason) {
  return {ExitCode::no_poll_function, "--poll-site " + spec.text + ": " + reason};
}

// From where to decode up to an address: the start of the function that contains it, else the
// nearest function before it, else the section's start.
std::optional<ElfExtent> decoding_range(const ElfImage& image, const ElfImage* debug,
                                        uint64_t address) {
  if (const auto extent = image.extent_of(address)) return extent;
  for (const ElfSection& section : image.sections()) {
    if (!section.executable || address < section.address ||
        address - section.address >= section.size) {
      continue;
    }
    ElfExtent extent{section.address, section.address + section.size};
    for (const ElfImage* symbols : {&image, debug}) {
      if (symbols == nullptr) continue;
      for (const ElfSymbol& symbol : symbols->functions()) {
        if (symbol.address <= address && symbol.address > extent.start) {
          extent.start = symbol.address;
        }
      }
    }
    return extent;
  }
  return std::nullopt;
}

}  // namespace

Result<PollSiteSpec> parse_poll_site(std::string_view text) {
  PollSiteSpec spec;
  spec.text = text;
  const size_t plus = text.rfind('+');
  if (plus != std::string_view::npos) spec.offset = hex_number(text.substr(plus + 1));
  if (spec.offset) {
    spec.file = text.substr(0, plus);
  } else {
    // The first colon of the last path component: a C++ symbol has colons of its own.
    const size_t slash = text.rfind('/');
    const size_t colon = text.find(':', slash == std::string_view::npos ? 0 : slash);
    if (colon == std::string_view::npos) return malformed(text);
    spec.file = text.substr(0, colon);
    spec.symbol = text.substr(colon + 1);
    if (spec.symbol.empty()) return malformed(text);
  }
  if (spec.file.empty()) return malformed(text);
  return spec;
}

Result<const Mapping*> find_poll_site_file(const PollSiteSpec& spec, const MemoryMap& map) {
  const Mapping* found = nullptr;
  for (const Mapping& mapping : map.mappings()) {
    if (!mapping.executable || !matches(mapping, spec.file)) continue;
    if (found != nullptr && !found->same_file(mapping)) {
      return unresolved(spec, "the process maps both " + found->path + " and " + mapping.path +
                                  ": give the whole path");
    }
    found = &mapping;
  }
  if (found == nullptr) {
    return unresolved(spec, "the process maps no code of a file " + spec.file +
                                ": give its path or name as in /proc/PID/maps");
  }
  return found;
}

Result<uint64_t> resolve_poll_site(const PollSiteSpec& spec, const ElfImage& image,
                                   const ElfImage* debug, const InstructionSet& set) {
  if (!spec.offset) {
    const ElfSymbol* symbol = image.function(spec.symbol);
    if (symbol == nullptr && debug != nullptr) symbol = debug->function(spec.symbol);
    if (symbol == nullptr || !image.is_code(symbol->address)) {
      return unresolved(spec, image.name() + " has no function " + spec.symbol +
                                  (debug == nullptr ? " and no debug file was found for it" : "") +
                                  ": check the name, or give FILE+0xOFFSET");
    }
    return symbol->address;
  }
  const auto address = image.address_of(*spec.offset);
  if (!address || !image.is_code(*address)) {
    return unresolved(spec,
                      "the file has no code at that offset: give a file offset, as uprobes "
                      "take it");
  }
  const auto range = decoding_range(image, debug, *address);
  const std::vector<uint8_t> code =
      range ? image.read(range->start, range->end - range->start) : std::vector<uint8_t>();
  if (!range || !starts_instruction(set, code, range->start, *address)) {
    return unresolved(spec,
                      "no instruction starts at that offset: a probe there would break the "
                      "process");
  }
  return *address;
}

}  // namespace pollgap
