// SPDX-License-Identifier: Apache-2.0
#include "probes/elf_image.h"

#include <elfutils/libdwelf.h>
#include <gelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "probes/hexadecimal.h"

namespace pollgap {
namespace {

constexpr uint64_t max_read_bytes = 64 << 20;
constexpr size_t max_symbols = 8'000'000;
constexpr size_t max_relocations = 4'000'000;
constexpr size_t max_name_bytes = 4096;
#ifndef SHT_RELR
constexpr uint32_t SHT_RELR = 19;
#endif

// The string at that offset of a string table, bounded.
std::string string_at(Elf* elf, size_t table, size_t offset) {
  const char* text = elf_strptr(elf, table, offset);
  return text != nullptr ? std::string(text, strnlen(text, max_name_bytes)) : std::string();
}

template <typename T>
std::optional<T> value_at(const std::vector<uint8_t>& bytes, size_t offset) {
  T value;
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// A section's header and content, where both can be had.
struct SectionData {
  GElf_Shdr header{};
  Elf_Data* data = nullptr;
  size_t entries = 0;
};

std::optional<SectionData> section_data(Elf_Scn* section) {
  SectionData found;
  if (section == nullptr || gelf_getshdr(section, &found.header) == nullptr) return std::nullopt;
  if (found.header.sh_type == SHT_NOBITS) return std::nullopt;
  found.data = elf_getdata(section, nullptr);
  // libelf takes offsets and indexes as int.
  if (found.data == nullptr || found.data->d_buf == nullptr || found.data->d_size > INT32_MAX) {
    return std::nullopt;
  }
  if (found.header.sh_entsize != 0) found.entries = found.data->d_size / found.header.sh_entsize;
  return found;
}

template <typename Visit>
void for_each_section(Elf* elf, uint32_t type, Visit visit) {
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section)) != nullptr;) {
    const auto data = section_data(section);
    if (data && data->header.sh_type == type) visit(*data);
  }
}

std::optional<SectionData> section_of_type(Elf* elf, uint32_t type) {
  std::optional<SectionData> first;
  for_each_section(elf, type, [&](const SectionData& data) {
    if (!first) first = data;
  });
  return first;
}

// The offset `add` bytes on, or -1, which libelf refuses, where the section does not reach so far.
int advance(const SectionData& section, int offset, uint32_t add) {
  const uint64_t sum = static_cast<uint64_t>(offset) + add;
  return sum < section.data->d_size ? static_cast<int>(sum) : -1;
}

// Names of the symbol versions, by index: .gnu.version_d (defined) and .gnu.version_r (needed).
std::map<uint16_t, std::string> version_names(Elf* elf) {
  std::map<uint16_t, std::string> names;
  for_each_section(elf, SHT_GNU_verdef, [&](const SectionData& section) {
    int offset = 0;
    for (uint32_t i = 0; i < section.header.sh_info; ++i) {
      GElf_Verdef definition;
      GElf_Verdaux name;
      if (gelf_getverdef(section.data, offset, &definition) == nullptr) return;
      if (gelf_getverdaux(section.data, advance(section, offset, definition.vd_aux), &name) !=
          nullptr) {
        names[definition.vd_ndx] = string_at(elf, section.header.sh_link, name.vda_name);
      }
      offset = advance(section, offset, definition.vd_next);
      if (definition.vd_next == 0 || offset < 0) return;
    }
  });
  for_each_section(elf, SHT_GNU_verneed, [&](const SectionData& section) {
    int offset = 0;
    for (uint32_t i = 0; i < section.header.sh_info; ++i) {
      GElf_Verneed needed;
      if (gelf_getverneed(section.data, offset, &needed) == nullptr) return;
      int name_offset = advance(section, offset, needed.vn_aux);
      for (uint16_t j = 0; j < needed.vn_cnt; ++j) {
        GElf_Vernaux name;
        if (name_offset < 0) break;
        if (gelf_getvernaux(section.data, name_offset, &name) == nullptr) break;
        names[name.vna_other & 0x7fff] = string_at(elf, section.header.sh_link, name.vna_name);
        name_offset = advance(section, name_offset, name.vna_next);
        if (name.vna_next == 0) break;
      }
      offset = advance(section, offset, needed.vn_next);
      if (needed.vn_next == 0 || offset < 0) return;
    }
  });
  return names;
}

// Version of the dynamic symbol with that index, and whether it is the default one.
struct SymbolVersion {
  std::string name;
  bool is_default = true;
};

class SymbolVersions {
 public:
  explicit SymbolVersions(Elf* elf)
      : names_(version_names(elf)), table_(section_of_type(elf, SHT_GNU_versym)) {}

  SymbolVersion of(size_t symbol) const {
    SymbolVersion version;
    GElf_Versym value = 0;
    if (!table_ || gelf_getversym(table_->data, static_cast<int>(symbol), &value) == nullptr) {
      return version;
    }
    version.is_default = (value & 0x8000) == 0;
    const auto name = names_.find(value & 0x7fff);
    if ((value & 0x7fff) > 1 && name != names_.end()) version.name = name->second;
    return version;
  }

 private:
  std::map<uint16_t, std::string> names_;
  std::optional<SectionData> table_;
};

// .symtab writes the version into the name: "f@V" or, for the default one, "f@@V".
void split_version(ElfSymbol& symbol) {
  const size_t at = symbol.name.find('@');
  if (at == std::string::npos || at == 0) return;
  symbol.default_version = symbol.name.compare(at, 2, "@@") == 0;
  symbol.version = symbol.name.substr(at + (symbol.default_version ? 2 : 1));
  symbol.name.resize(at);
}

}  // namespace

ElfImage::ElfImage(ElfImage&& other) noexcept { *this = std::move(other); }

ElfImage& ElfImage::operator=(ElfImage&& other) noexcept {
  if (this == &other) return *this;
  elf_end(elf_);
  name_ = std::move(other.name_);
  fd_ = std::move(other.fd_);
  elf_ = std::exchange(other.elf_, nullptr);
  file_bytes_ = other.file_bytes_;
  machine_ = other.machine_;
  build_id_ = std::move(other.build_id_);
  debug_link_ = std::move(other.debug_link_);
  segments_ = std::move(other.segments_);
  sections_ = std::move(other.sections_);
  unwind_entries_ = std::move(other.unwind_entries_);
  functions_ = std::move(other.functions_);
  relocations_ = std::move(other.relocations_);
  packed_relocations_ = std::move(other.packed_relocations_);
  return *this;
}

ElfImage::~ElfImage() { elf_end(elf_); }

Result<ElfImage> ElfImage::open(FileDescriptor fd, std::string name) {
  ElfImage image;
  image.name_ = std::move(name);
  image.fd_ = std::move(fd);
  elf_version(EV_CURRENT);
  struct stat info {};
  if (fstat(image.fd_.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Error{ExitCode::other, image.name_ + ": not a readable file"};
  }
  image.file_bytes_ = static_cast<uint64_t>(info.st_size);
  // Not ELF_C_READ_MMAP: the owner of a mapped file can truncate it, and the reader then dies.
  image.elf_ = elf_begin(image.fd_.get(), ELF_C_READ, nullptr);
  if (!image.read_header()) {
    return Error{ExitCode::other, image.name_ + ": not a 64-bit little-endian ELF file"};
  }
  image.read_segments();
  image.read_sections();
  image.read_build_id();
  return image;
}

bool ElfImage::read_header() {
  GElf_Ehdr header;
  if (elf_ == nullptr || elf_kind(elf_) != ELF_K_ELF || gelf_getehdr(elf_, &header) == nullptr) {
    return false;
  }
  machine_ = header.e_machine;
  return header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB;
}

void ElfImage::read_segments() {
  size_t count = 0;
  if (elf_getphdrnum(elf_, &count) != 0) return;
  count = std::min<size_t>(count, UINT16_MAX);
  std::optional<GElf_Phdr> unwind;
  for (size_t i = 0; i < count; ++i) {
    GElf_Phdr header;
    if (gelf_getphdr(elf_, static_cast<int>(i), &header) == nullptr) break;
    if (header.p_type == PT_GNU_EH_FRAME) unwind = header;
    if (header.p_type != PT_LOAD || header.p_offset >= file_bytes_) continue;
    const uint64_t bytes = std::min(header.p_filesz, file_bytes_ - header.p_offset);
    if (bytes == 0 || header.p_vaddr > UINT64_MAX - bytes) continue;
    segments_.push_back({header.p_vaddr, bytes, header.p_offset, (header.p_flags & PF_X) != 0});
  }
  if (unwind) read_unwind_table(unwind->p_vaddr, unwind->p_filesz);
}

void ElfImage::read_sections() {
  size_t names = 0;
  if (elf_getshdrstrndx(elf_, &names) != 0) return;
  for (Elf_Scn* scan = nullptr; (scan = elf_nextscn(elf_, scan)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(scan, &header) == nullptr) continue;
    ElfSection section;
    section.name = string_at(elf_, names, header.sh_name);
    section.type = header.sh_type;
    section.address = header.sh_addr;
    section.offset = header.sh_offset;
    section.size = header.sh_size;
    section.executable = (header.sh_flags & SHF_EXECINSTR) != 0;
    if (section.name == ".gnu_debuglink") read_debug_link(section);
    sections_.push_back(std::move(section));
  }
}

void ElfImage::read_build_id() {
  const void* id = nullptr;
  const ssize_t bytes = dwelf_elf_gnu_build_id(elf_, &id);
  if (bytes <= 0 || bytes > 64) return;
  build_id_ = hexadecimal({static_cast<const unsigned char*>(id), static_cast<size_t>(bytes)});
}

// .gnu_debuglink: a file name, NUL, padding to 4 bytes, CRC-32 (GDB manual, Separate Debug Files).
void ElfImage::read_debug_link(const ElfSection& section) {
  if (section.type == SHT_NOBITS || section.size < 8 || section.size > max_name_bytes) return;
  std::vector<uint8_t> bytes(section.size);
  const ssize_t got =
      pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(section.offset));
  if (got != static_cast<ssize_t>(bytes.size())) return;
  const auto end = std::find(bytes.begin(), bytes.end(), 0);
  const size_t length = static_cast<size_t>(end - bytes.begin());
  const auto crc = value_at<uint32_t>(bytes, (length + 4) & ~size_t{3});
  if (end == bytes.end() || length == 0 || !crc) return;
  debug_link_ = ElfDebugLink{std::string(bytes.begin(), end), *crc};
}

// .eh_frame_hdr's table of (function start, FDE), both relative to the header (Linux Standard Base
// Core, section 10.6.2). Only the encoding that linkers write is read.
void ElfImage::read_unwind_table(uint64_t address, uint64_t bytes) {
  const std::vector<uint8_t> table = read(address, bytes);
  constexpr size_t entries_at = 12;
  const auto count = value_at<uint32_t>(table, 8);
  if (!count || table[0] != 1 || table[1] != 0x1b || table[2] != 0x03 || table[3] != 0x3b) return;
  for (size_t i = 0; i < *count; ++i) {
    const auto start = value_at<int32_t>(table, entries_at + 8 * i);
    const auto entry = value_at<int32_t>(table, entries_at + 8 * i + 4);
    if (!start || !entry) return;
    unwind_entries_.emplace_hint(unwind_entries_.end(),
                                 address + static_cast<uint64_t>(int64_t{*start}),
                                 address + static_cast<uint64_t>(int64_t{*entry}));
  }
}

const ElfImage::Segment* ElfImage::segment_of(uint64_t address) const {
  for (const Segment& segment : segments_) {
    if (address >= segment.address && address - segment.address < segment.file_bytes) {
      return &segment;
    }
  }
  return nullptr;
}

std::optional<uint64_t> ElfImage::offset_of(uint64_t address) const {
  const Segment* segment = segment_of(address);
  if (segment == nullptr) return std::nullopt;
  return segment->offset + (address - segment->address);
}

std::optional<uint64_t> ElfImage::address_of(uint64_t offset) const {
  // Neighbouring segments may share a page of the file: the executable one is asked for.
  const Segment* found = nullptr;
  for (const Segment& segment : segments_) {
    if (offset < segment.offset || offset - segment.offset >= segment.file_bytes) continue;
    if (found == nullptr || segment.executable) found = &segment;
  }
  if (found == nullptr) return std::nullopt;
  return found->address + (offset - found->offset);
}

bool ElfImage::is_code(uint64_t address) const {
  const Segment* segment = segment_of(address);
  return segment != nullptr && segment->executable;
}

std::vector<uint8_t> ElfImage::read(uint64_t address, uint64_t bytes) const {
  const Segment* segment = segment_of(address);
  if (segment == nullptr) return {};
  const uint64_t skip = address - segment->address;
  std::vector<uint8_t> content(std::min({bytes, segment->file_bytes - skip, max_read_bytes}));
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t got = pread(fd_.get(), content.data() + done, content.size() - done,
                              static_cast<off_t>(segment->offset + skip + done));
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  content.resize(done);
  return content;
}

void ElfImage::load_symbols(bool dynamic) const {
  const SymbolVersions versions(elf_);
  for_each_section(elf_, dynamic ? SHT_DYNSYM : SHT_SYMTAB, [&](const SectionData& section) {
    for (size_t i = 0; i < section.entries && functions_->size() < max_symbols; ++i) {
      GElf_Sym entry;
      if (gelf_getsym(section.data, static_cast<int>(i), &entry) == nullptr) return;
      if (GELF_ST_TYPE(entry.st_info) != STT_FUNC || entry.st_shndx == SHN_UNDEF) continue;
      ElfSymbol symbol;
      symbol.name = string_at(elf_, section.header.sh_link, entry.st_name);
      symbol.address = entry.st_value;
      symbol.size = entry.st_size;
      if (symbol.name.empty()) continue;
      if (dynamic) {
        SymbolVersion version = versions.of(i);
        symbol.version = std::move(version.name);
        symbol.default_version = version.is_default;
      } else {
        split_version(symbol);
      }
      functions_->push_back(std::move(symbol));
    }
  });
}

const std::vector<ElfSymbol>& ElfImage::functions() const {
  if (functions_) return *functions_;
  functions_.emplace();
  load_symbols(true);
  load_symbols(false);
  std::stable_sort(functions_->begin(), functions_->end(),
                   [](const ElfSymbol& a, const ElfSymbol& b) { return a.address < b.address; });
  return *functions_;
}

const ElfSymbol* ElfImage::function(std::string_view name) const {
  const ElfSymbol* found = nullptr;
  for (const ElfSymbol& symbol : functions()) {
    if (symbol.name != name) continue;
    if (found == nullptr || (symbol.default_version && !found->default_version)) found = &symbol;
  }
  return found;
}

const ElfSymbol* ElfImage::function_at(uint64_t address) const {
  const std::vector<ElfSymbol>& all = functions();
  auto after = std::upper_bound(
      all.begin(), all.end(), address,
      [](uint64_t value, const ElfSymbol& symbol) { return value < symbol.address; });
  if (after == all.begin()) return nullptr;
  const uint64_t start = std::prev(after)->address;
  for (auto first = after; first != all.begin();) {
    --first;
    if (first->address != start) break;
    after = first;
  }
  const bool inside = address == start || address - start < after->size;
  return inside ? &*after : nullptr;
}

std::optional<ElfExtent> ElfImage::extent_of(uint64_t address) const {
  auto entry = unwind_entries_.upper_bound(address);
  if (entry != unwind_entries_.begin()) {
    --entry;
    // FDE: length, offset of its CIE, start (relative to itself), length of the function.
    const std::vector<uint8_t> fde = read(entry->second, 16);
    const auto length = value_at<uint32_t>(fde, 0);
    const auto begin = value_at<int32_t>(fde, 8);
    const auto bytes = value_at<uint32_t>(fde, 12);
    if (length && begin && bytes && *length >= 12 && *length != UINT32_MAX &&
        entry->second + 8 + static_cast<uint64_t>(int64_t{*begin}) == entry->first &&
        address - entry->first < *bytes) {
      return ElfExtent{entry->first, entry->first + *bytes};
    }
  }
  const ElfSymbol* symbol = function_at(address);
  if (symbol == nullptr || symbol->size == 0 || symbol->address > UINT64_MAX - symbol->size) {
    return std::nullopt;
  }
  return ElfExtent{symbol->address, symbol->address + symbol->size};
}

const std::vector<ElfRelocation>& ElfImage::relocations() const {
  if (relocations_) return *relocations_;
  relocations_.emplace();
  const SymbolVersions versions(elf_);
  for_each_section(elf_, SHT_RELA, [&](const SectionData& section) {
    const auto symbols = section_data(elf_getscn(elf_, section.header.sh_link));
    if (!symbols || symbols->header.sh_type != SHT_DYNSYM) return;  // not of the loader's
    for (size_t i = 0; i < section.entries && relocations_->size() < max_relocations; ++i) {
      GElf_Rela entry;
      if (gelf_getrela(section.data, static_cast<int>(i), &entry) == nullptr) return;
      ElfRelocation relocation;
      relocation.address = entry.r_offset;
      relocation.type = static_cast<uint32_t>(GELF_R_TYPE(entry.r_info));
      relocation.addend = entry.r_addend;
      const size_t index = GELF_R_SYM(entry.r_info);
      GElf_Sym symbol;
      if (index != 0 && index < symbols->entries &&
          gelf_getsym(symbols->data, static_cast<int>(index), &symbol) != nullptr) {
        relocation.symbol = string_at(elf_, symbols->header.sh_link, symbol.st_name);
        relocation.symbol_version = versions.of(index).name;
        if (symbol.st_shndx != SHN_UNDEF) relocation.symbol_address = symbol.st_value;
      }
      relocations_->push_back(std::move(relocation));
    }
  });
  return *relocations_;
}

// DT_RELR (gABI): an even entry is an address; an odd one is a bitmap of the 63 words after the
// last address.
const std::map<uint64_t, uint64_t>& ElfImage::packed_relocations() const {
  if (packed_relocations_) return *packed_relocations_;
  packed_relocations_.emplace();
  const auto add = [this](uint64_t address) {
    const auto value = value_at<uint64_t>(read(address, sizeof(uint64_t)), 0);
    if (value && packed_relocations_->size() < max_relocations) {
      packed_relocations_->emplace(address, *value);
    }
  };
  for (const ElfSection& section : sections_) {
    if (section.type != SHT_RELR) continue;
    const std::vector<uint8_t> entries = read(section.address, section.size);
    uint64_t next = 0;
    for (size_t at = 0; const auto entry = value_at<uint64_t>(entries, at); at += 8) {
      if ((*entry & 1) == 0) {
        add(*entry);
        next = *entry + 8;
        continue;
      }
      for (uint64_t bit = 1; bit < 64; ++bit) {
        if ((*entry >> bit & 1) != 0) add(next + 8 * (bit - 1));
      }
      next += uint64_t{8} * 63;
    }
  }
  return *packed_relocations_;
}

}  // namespace pollgap
