// SPDX-License-Identifier: Apache-2.0
#include "probes/symbolizer.h"

#include <cxxabi.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <string.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "probes/debug_file.h"
#include "probes/hexadecimal.h"
#include "probes/monotonic_clock.h"

namespace pollgap {
namespace {

constexpr uint64_t reread_interval_ns = 1'000'000'000;
constexpr uint64_t max_vdso_bytes = 1 << 20;

std::string demangle(const char* name) {
  if (!std::string_view(name).starts_with("_Z")) return name;
  int status = 0;
  char* demangled = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && demangled != nullptr ? demangled : name;
  std::free(demangled);  // NOLINT: __cxa_demangle allocates it with malloc
  return result;
}

// The compilation units of a module by address. Needed for code of compilers that write no
// .debug_aranges (clang): libdwfl (before 0.191) finds no unit without it.
class Units {
 public:
  explicit Units(Dwfl_Module* module) {
    for (Dwarf_Die* unit = nullptr; units_.size() < max_units &&
                                    (unit = dwfl_module_nextcu(module, unit, &bias_)) != nullptr;) {
      units_.push_back(*unit);
      Dwarf_Addr base = 0, start = 0, end = 0;
      for (ptrdiff_t at = 0; (at = dwarf_ranges(unit, at, &base, &start, &end)) > 0;) {
        if (start < end) ranges_.push_back({start, end, units_.size() - 1});
      }
    }
    std::sort(ranges_.begin(), ranges_.end(),
              [](const Range& a, const Range& b) { return a.start < b.start; });
  }

  // The line of an address in the process, or null.
  Dwarf_Line* line(uint64_t address) {
    const uint64_t wanted = address - bias_;
    auto after =
        std::upper_bound(ranges_.begin(), ranges_.end(), wanted,
                         [](uint64_t value, const Range& range) { return value < range.start; });
    if (after == ranges_.begin() || wanted >= std::prev(after)->end) return nullptr;
    return dwarf_getsrc_die(&units_[std::prev(after)->unit], wanted);
  }

 private:
  static constexpr size_t max_units = 1'000'000;
  struct Range {
    uint64_t start, end;
    size_t unit;
  };
  Dwarf_Addr bias_ = 0;
  std::vector<Dwarf_Die> units_;
  std::vector<Range> ranges_;
};

// All mappings of one file, as libdwfl wants a module: one range.
struct Module {
  Mapping mapping;  // the first: the one whose file is opened
  uint64_t end = 0;
};

}  // namespace

struct Symbolizer::Impl {
  explicit Impl(const Process& target) : process(target) {
    callbacks.find_elf = find_elf;
    callbacks.find_debuginfo = find_debuginfo;
    callbacks.section_address = dwfl_offline_section_address;
    dwfl = dwfl_begin(&callbacks);
  }
  ~Impl() { dwfl_end(dwfl); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status read_map();
  CodeLocation find(uint64_t address);
  void add_function(Dwfl_Module* module, uint64_t address, CodeLocation& location);
  void add_line(Dwfl_Module* module, uint64_t address, CodeLocation& location);
  Elf* open_elf(const Module& module, int& fd);

  // libdwfl's callbacks (libdwfl.h). The module's user data is the Module, the Impl is found
  // through its first word.
  static int find_elf(Dwfl_Module* dwfl_module, void** user_data, const char* name, Dwarf_Addr base,
                      char** file_name, Elf** elf);
  static int find_debuginfo(Dwfl_Module* dwfl_module, void** user_data, const char* name,
                            Dwarf_Addr base, const char* file_name, const char* link_name,
                            GElf_Word link_crc, char** debug_name);

  struct Reported {
    Impl* owner;
    Module module;
  };

  const Process& process;
  Dwfl_Callbacks callbacks{};
  Dwfl* dwfl = nullptr;
  MemoryMap map;
  uint64_t read_at_ns = 0;
  std::map<std::pair<std::string, uint64_t>, std::unique_ptr<Reported>> modules;
  std::map<Dwfl_Module*, std::unique_ptr<Units>> units;
  std::vector<std::vector<std::byte>> images;  // read from memory; libelf keeps pointing into them
  std::unordered_map<uint64_t, CodeLocation> known;
};

Status Symbolizer::Impl::read_map() {
  auto fresh = process.memory_map();
  read_at_ns = monotonic_ns();
  if (!fresh) return fresh.error();
  map = std::move(*fresh);

  std::vector<Module> found;
  for (const Mapping& mapping : map.mappings()) {
    const bool vdso = mapping.path == "[vdso]";
    if (!vdso && (!mapping.is_file() || mapping.path.starts_with("/dev/"))) continue;
    if (!found.empty() && found.back().mapping.same_file(mapping) && mapping.offset != 0) {
      found.back().end = mapping.end;
    } else if (vdso || mapping.offset == 0) {
      found.push_back({mapping, mapping.end});
    }
  }
  units.clear();  // a module that is gone takes its units with it
  dwfl_report_begin(dwfl);
  for (const Module& module : found) {
    const std::string& path = module.mapping.path;
    Dwfl_Module* reported =
        dwfl_report_module(dwfl, path.c_str(), module.mapping.start, module.end);
    if (reported == nullptr) continue;
    auto& kept = modules[{path, module.mapping.start}];
    if (!kept) kept = std::make_unique<Reported>(Reported{this, module});
    void** user_data = nullptr;
    dwfl_module_info(reported, &user_data, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
    if (user_data != nullptr) *user_data = kept.get();
  }
  dwfl_report_end(dwfl, nullptr, nullptr);
  return std::nullopt;
}

Elf* Symbolizer::Impl::open_elf(const Module& module, int& fd) {
  elf_version(EV_CURRENT);
  if (module.mapping.path == "[vdso]") {
    std::vector<std::byte> image(std::min(module.end - module.mapping.start, max_vdso_bytes));
    if (process.memory()->read(module.mapping.start, image) != image.size()) return nullptr;
    images.push_back(std::move(image));
    return elf_memory(reinterpret_cast<char*>(images.back().data()), images.back().size());
  }
  auto opened = process.open_mapped_file(module.mapping);
  if (!opened) return nullptr;
  // Not ELF_C_READ_MMAP: the owner of a mapped file can truncate it, and the reader then dies.
  Elf* elf = elf_begin(opened->fd.get(), ELF_C_READ, nullptr);
  if (elf != nullptr) fd = opened->fd.release();
  return elf;
}

int Symbolizer::Impl::find_elf(Dwfl_Module* /*dwfl_module*/, void** user_data, const char* /*name*/,
                               Dwarf_Addr /*base*/, char** /*file_name*/, Elf** elf) {
  int fd = -1;
  const auto* reported = static_cast<const Reported*>(*user_data);
  if (reported != nullptr) *elf = reported->owner->open_elf(reported->module, fd);
  return fd;
}

// Also called for the file that several debug files share (dwz's .gnu_debugaltlink): then the
// module's build-id is for the moment that file's, and `file_name` is the debug file's.
int Symbolizer::Impl::find_debuginfo(Dwfl_Module* dwfl_module, void** user_data,
                                     const char* /*name*/, Dwarf_Addr /*base*/,
                                     const char* file_name, const char* link_name,
                                     GElf_Word link_crc, char** debug_name) {
  const auto* reported = static_cast<const Reported*>(*user_data);
  if (reported == nullptr || !reported->module.mapping.is_file()) return -1;
  DebugFileQuery query{reported->module.mapping.path, {}, {}, link_crc};
  if (link_name != nullptr) query.link_name = link_name;
  if (file_name != nullptr && query.link_name.find('/') != std::string::npos) {
    query.path = file_name;
  }
  const unsigned char* id = nullptr;
  GElf_Addr where = 0;
  const int bytes = dwfl_module_build_id(dwfl_module, &id, &where);
  if (bytes > 0) query.build_id = hexadecimal({id, static_cast<size_t>(bytes)});
  DebugFile debug = find_debug_file(query, reported->owner->process);
  if (!debug.fd) return -1;
  *debug_name = strdup(debug.path.c_str());
  return debug.fd.release();
}

void Symbolizer::Impl::add_function(Dwfl_Module* module, uint64_t address, CodeLocation& location) {
  GElf_Off within = 0;
  GElf_Sym symbol;
  const char* name =
      dwfl_module_addrinfo(module, address, &within, &symbol, nullptr, nullptr, nullptr);
  // Of a stripped file only exported functions are known: the nearest one before is another.
  if (name != nullptr && (within == 0 || within < symbol.st_size)) {
    location.function = demangle(name);
  }
}

void Symbolizer::Impl::add_line(Dwfl_Module* module, uint64_t address, CodeLocation& location) {
  int line = 0;
  const char* file = nullptr;
  if (Dwfl_Line* source = dwfl_module_getsrc(module, address)) {
    file = dwfl_lineinfo(source, nullptr, &line, nullptr, nullptr, nullptr);
  } else {
    auto& known_units = units[module];
    if (!known_units) known_units = std::make_unique<Units>(module);
    if (Dwarf_Line* found = known_units->line(address)) {
      file = dwarf_linesrc(found, nullptr, nullptr);
      dwarf_lineno(found, &line);
    }
  }
  if (file == nullptr || line <= 0) return;
  location.file = file;
  location.line = static_cast<uint32_t>(line);
}

CodeLocation Symbolizer::Impl::find(uint64_t address) {
  CodeLocation location;
  const Mapping* mapping = map.find(address);
  if (mapping == nullptr && monotonic_ns() - read_at_ns >= reread_interval_ns && !read_map()) {
    mapping = map.find(address);
  }
  if (mapping == nullptr || (!mapping->is_file() && mapping->path != "[vdso]")) return location;
  location.module = mapping->path;
  location.module_offset = address - mapping->start + mapping->offset;
  if (Dwfl_Module* module = dwfl_addrmodule(dwfl, address)) {
    add_function(module, address, location);
    add_line(module, address, location);
  }
  return location;
}

Symbolizer::Symbolizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Symbolizer::~Symbolizer() = default;
Symbolizer::Symbolizer(Symbolizer&&) noexcept = default;
Symbolizer& Symbolizer::operator=(Symbolizer&&) noexcept = default;

Result<Symbolizer> Symbolizer::open(const Process& process) {
  auto impl = std::make_unique<Impl>(process);
  if (impl->dwfl == nullptr) return Error{ExitCode::other, "libdwfl: no memory"};
  if (Status failed = impl->read_map()) return *failed;
  return Symbolizer(std::move(impl));
}

const CodeLocation& Symbolizer::locate(uint64_t address) {
  const auto known = impl_->known.find(address);
  if (known != impl_->known.end()) return known->second;
  return impl_->known.emplace(address, impl_->find(address)).first->second;
}

}  // namespace pollgap
