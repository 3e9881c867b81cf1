// SPDX-License-Identifier: Apache-2.0
// What discovery needs of an ELF file (elf(5), System V gABI). The file is the target's, so its
// content is hostile: whatever does not fit is absent, never believed.
//
// Addresses are the file's own (as linked), before the loader's bias.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "probes/file_descriptor.h"
#include "probes/result.h"

struct Elf;

namespace pollgap {

struct ElfSymbol {
  std::string name;     // without its version
  std::string version;  // "IBVERBS_1.1", "" none
  uint64_t address = 0;
  uint64_t size = 0;
  bool default_version = true;  // the one that new programs bind to
};

struct ElfSection {
  std::string name;
  uint32_t type = 0;  // SHT_*
  uint64_t address = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  bool executable = false;
};

// A dynamic relocation. `symbol` is empty where it refers to none.
struct ElfRelocation {
  uint64_t address = 0;  // where it is applied
  uint32_t type = 0;     // R_*
  int64_t addend = 0;
  std::string symbol;
  std::string symbol_version;
  uint64_t symbol_address = 0;  // 0: defined elsewhere
};

struct ElfExtent {
  uint64_t start = 0;
  uint64_t end = 0;
};

struct ElfDebugLink {
  std::string file_name;
  uint32_t crc = 0;
};

class ElfImage {
 public:
  // `name` is for messages. Error: other, where it is not a 64-bit little-endian ELF file.
  static Result<ElfImage> open(FileDescriptor fd, std::string name);
  ~ElfImage();
  ElfImage(ElfImage&&) noexcept;
  ElfImage& operator=(ElfImage&&) noexcept;

  const std::string& name() const { return name_; }
  uint16_t machine() const { return machine_; }
  // Names one file's very content; identical files share it. Hexadecimal, "" none.
  const std::string& build_id() const { return build_id_; }
  const std::optional<ElfDebugLink>& debug_link() const { return debug_link_; }
  const std::vector<ElfSection>& sections() const { return sections_; }

  std::optional<uint64_t> offset_of(uint64_t address) const;
  std::optional<uint64_t> address_of(uint64_t offset) const;
  bool is_code(uint64_t address) const;
  // At most `bytes` of the file's content at that address; fewer at its segment's end.
  std::vector<uint8_t> read(uint64_t address, uint64_t bytes) const;

  // Functions defined in .symtab and .dynsym, by address. Read once, on first use.
  const std::vector<ElfSymbol>& functions() const;
  // The default version, where it has several. Local functions are found too, but an exported one
  // of the same name comes first.
  const ElfSymbol* function(std::string_view name) const;
  // The function that begins at or contains the address, exported names first.
  const ElfSymbol* function_at(uint64_t address) const;
  // Where the function that contains the address begins and ends: from .eh_frame, which stripping
  // leaves in place, else from the symbols.
  std::optional<ElfExtent> extent_of(uint64_t address) const;

  // Dynamic relocations, those packed in .relr.dyn excepted. Read once, on first use.
  const std::vector<ElfRelocation>& relocations() const;
  // Addresses that the loader adds its bias to, with the value in the file (DT_RELR).
  const std::map<uint64_t, uint64_t>& packed_relocations() const;

 private:
  struct Segment {
    uint64_t address, file_bytes, offset;
    bool executable;
  };
  ElfImage() = default;
  bool read_header();
  void read_segments();
  void read_sections();
  void read_build_id();
  void read_debug_link(const ElfSection& section);
  void read_unwind_table(uint64_t address, uint64_t bytes);
  const Segment* segment_of(uint64_t address) const;
  void load_symbols(bool dynamic) const;

  std::string name_;
  FileDescriptor fd_;
  Elf* elf_ = nullptr;
  uint64_t file_bytes_ = 0;
  uint16_t machine_ = 0;
  std::string build_id_;
  std::optional<ElfDebugLink> debug_link_;
  std::vector<Segment> segments_;
  std::vector<ElfSection> sections_;
  std::map<uint64_t, uint64_t> unwind_entries_;  // function start -> address of its FDE

  mutable std::optional<std::vector<ElfSymbol>> functions_;
  mutable std::optional<std::vector<ElfRelocation>> relocations_;
  mutable std::optional<std::map<uint64_t, uint64_t>> packed_relocations_;
};

}  // namespace pollgap
