// SPDX-License-Identifier: Apache-2.0
#include "probes/discovery.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <set>
#include <span>

#include "probes/control_verbs.h"
#include "probes/cq_layout.h"
#include "probes/instruction_choice.h"
#include "probes/instruction_set.h"
#include "probes/module_files.h"
#include "probes/poll_site.h"
#include "probes/static_ops.h"

namespace pollgap {
namespace {

// Enough of a function to see what jumps back into its beginning.
constexpr uint64_t max_function_bytes = 64 << 10;
constexpr uint64_t unknown_function_bytes = 256;
constexpr size_t max_found_by = 4;

std::string hex(uint64_t value) {
  std::array<char, 24> text;
  (void)snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_library(const Mapping& mapping, std::string_view name) {
  return mapping.executable && mapping.is_file() && file_name(mapping.path).starts_with(name);
}

// As rdma-core's build names the providers: those with functions of their own are ordinary
// libraries, loaded by a link "libNAME-rdmavNN.so" that the memory map shows resolved.
bool is_provider(const Mapping& mapping) {
  constexpr std::array<std::string_view, 5> named = {"libmlx5.so", "libmlx4.so", "libefa.so",
                                                     "libmana.so", "libhns.so"};
  if (!mapping.executable || !mapping.is_file()) return false;
  const std::string_view name = file_name(mapping.path);
  return name.find("-rdmav") != std::string_view::npos ||
         std::any_of(named.begin(), named.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

class Discovery {
 public:
  Discovery(const Process& process, const DiscoveryOptions& options, const InstructionSet& set,
            MemoryMap map)
      : process_(process),
        options_(options),
        set_(set),
        map_(std::move(map)),
        files_(process, map_) {}

  Result<Sites> run() {
    sites_.pid = process_.pid();
    sites_.executable = process_.executable();
    if (Status failed = add_user_sites()) return *failed;
    add_live();
    add_library("libibverbs.so", true);
    add_library("librdmacm.so", false);
    if (!hook_tells()) add_static();
    sites_.threads = process_.threads();
    if (Status missing = check_poll_sites()) return *missing;
    return std::move(sites_);
  }

 private:
  void note(const std::string& text) {
    if (std::find(sites_.notes.begin(), sites_.notes.end(), text) == sites_.notes.end()) {
      sites_.notes.push_back(text);
    }
  }

  static bool is_poll(const Site& site) {
    return site.role == SiteRole::poll_cq || site.role == SiteRole::start_poll ||
           site.role == SiteRole::user;
  }

  // ---- one site ----

  // The site that begins at that address of the module, new or found before.
  Site* add_site(SiteRole role, const ModuleFile& module, uint64_t file_address,
                 const std::string& found_by) {
    const auto address = files_.process_address(module, file_address);
    const auto offset = module.image.offset_of(file_address);
    if (!address || !offset) return nullptr;
    for (Site& site : sites_.sites) {
      if (site.role != role || site.function_address != *address) continue;
      if (site.found_by.size() < max_found_by) site.found_by.push_back(found_by);
      return &site;
    }
    Site site;
    site.role = role;
    site.module = module.mapping.path;
    site.open_path = module.open_path;
    site.function_address = *address;
    site.function_offset = *offset;
    site.found_by.push_back(found_by);
    name_site(site, module, file_address);
    if (!place_probe(site, module, file_address)) return nullptr;
    sites_.sites.push_back(std::move(site));
    return &sites_.sites.back();
  }

  static void name_site(Site& site, const ModuleFile& module, uint64_t file_address) {
    site.name = std::string(file_name(module.mapping.path)) + "+" + hex(site.function_offset);
    const ElfSymbol* symbol = module.image.function_at(file_address);
    if (symbol != nullptr && symbol->address == file_address) {
      site.name = symbol->name;
    } else if (module.debug) {
      symbol = module.debug->function_at(file_address);
      if (symbol == nullptr || symbol->address != file_address) return;
      site.name = symbol->name;
      site.found_by.push_back("named by " + module.debug_path);
    }
  }

  bool place_probe(Site& site, const ModuleFile& module, uint64_t file_address) {
    const auto extent = module.image.extent_of(file_address);
    if (extent && extent->start == file_address) site.function_bytes = extent->end - extent->start;
    const uint64_t bytes = site.function_bytes != 0 ? site.function_bytes : unknown_function_bytes;
    const std::vector<uint8_t> code =
        module.image.read(file_address, std::min(bytes, max_function_bytes));
    const auto choice = choose_entry(set_, code, file_address, site.role != SiteRole::user);
    if (!choice) {
      note(site.name + " in " + site.module + ": " + choice.error().message);
      return false;
    }
    site.entry_offset = site.function_offset + choice->offset;
    site.entry_execution = choice->execution;
    site.first_execution = choice->first_execution;
    site.arguments_intact = choice->arguments_intact;
    return true;
  }

  // ---- from the live objects ----

  void add_live() {
    const auto memory = process_.memory();
    LiveScan scan = scan_live_contexts(*memory, map_, process_.open_fds(), options_.scan);
    scanned_bytes_ = scan.scanned_bytes;
    for (const std::string& text : scan.notes) note(text);
    const std::set<int> uverbs = process_.uverbs_fds();
    saw_no_device_ = scan.contexts.empty() && uverbs.empty();
    for (LiveContext& context : scan.contexts) {
      const std::string from =
          "live ibv_context " + hex(context.info.address) + " of " + context.info.device +
          (uverbs.contains(context.info.cmd_fd) ? " (its uverbs device is open)" : "");
      add_live_site(SiteRole::poll_cq, context.info.poll_cq, from);
      add_live_site(SiteRole::post_send, context.info.post_send, from);
      for (const ExtendedPoll& poll : context.extended) {
        const std::string cq = "live ibv_cq_ex " + hex(poll.cq);
        add_live_site(SiteRole::start_poll, poll.start_poll, cq);
        add_live_site(SiteRole::next_poll, poll.next_poll, cq);
        add_live_site(SiteRole::end_poll, poll.end_poll, cq);
      }
      sites_.contexts.push_back(std::move(context.info));
    }
    for (Site& site : sites_.sites) {
      const bool polls_cq = site.role == SiteRole::poll_cq || site.role == SiteRole::start_poll ||
                            site.role == SiteRole::next_poll;
      if (polls_cq && site.arguments_intact)
        site.cq_layout = find_cq_layout(*memory, map_, sites_.contexts, site.module);
    }
  }

  void add_live_site(SiteRole role, uint64_t address, const std::string& found_by) {
    const Mapping* mapping = map_.find(address);
    if (mapping == nullptr) return;
    const auto module = files_.get(*mapping);
    if (!module) return note(module.error().message);
    const auto file_address = ModuleFiles::file_address(**module, *mapping, address);
    if (!file_address) return note(mapping->path + ": " + hex(address) + " is not in its segments");
    add_site(role, **module, *file_address, found_by);
  }

  // ---- from the providers' files ----

  // Whether to wait for a device to be opened, rather than to watch every function of every
  // provider that libibverbs has loaded: there is no sign of an open one.
  bool hook_tells() const {
    return options_.wait_for_context && hook_found_ && sites_.contexts.empty() && saw_no_device_;
  }

  // With a live context its provider's file only confirms; without one it is all there is.
  void add_static() {
    const VerbsVersion version = library_version();
    std::set<std::string> done;
    for (const Mapping& mapping : map_.mappings()) {
      const bool in_use =
          std::any_of(sites_.contexts.begin(), sites_.contexts.end(),
                      [&](const ContextInfo& context) { return context.provider == mapping.path; });
      if (!mapping.executable || !(sites_.contexts.empty() ? is_provider(mapping) : in_use)) {
        continue;
      }
      if (done.insert(mapping.path).second) add_static(mapping, version);
    }
    providers_seen_ = done.size();
  }

  VerbsVersion library_version() const {
    for (const Mapping& mapping : map_.mappings()) {
      if (is_library(mapping, "libibverbs.so")) return verbs_version_of(mapping.path);
    }
    return {};
  }

  void add_static(const Mapping& mapping, VerbsVersion version) {
    const auto module = files_.get(mapping);
    if (!module) return note(module.error().message);
    const VerbsVersion own = verbs_version_of(mapping.path);
    if (own.private_abi != 0) version.private_abi = own.private_abi;
    if (own.release != 0) version.release = own.release;
    const auto found = find_static_ops((*module)->image, set_, version);
    if (!found) return note(found.error().message);
    if (sites_.contexts.empty()) {
      for (const StaticOps& ops : *found) add_static_sites(**module, ops);
    } else {
      confirm(**module, *found);
    }
  }

  void add_static_sites(const ModuleFile& module, const StaticOps& ops) {
    const std::string from = "static analysis: table at " + hex(ops.table) + " of " +
                             std::string(file_name(module.mapping.path));
    add_site(SiteRole::poll_cq, module, ops.poll_cq, from);
    if (ops.post_send != 0) add_site(SiteRole::post_send, module, ops.post_send, from);
  }

  // Says of each live poll function whether the file's tables have it, too.
  void confirm(const ModuleFile& module, const std::vector<StaticOps>& tables) {
    for (Site& site : sites_.sites) {
      if (site.role != SiteRole::poll_cq || site.module != module.mapping.path) continue;
      const auto table = std::find_if(tables.begin(), tables.end(), [&](const StaticOps& ops) {
        return files_.process_address(module, ops.poll_cq) == site.function_address;
      });
      if (table != tables.end()) {
        site.found_by.push_back("static analysis: table at " + hex(table->table) + " of " +
                                std::string(file_name(module.mapping.path)));
      } else {
        note("static analysis of " + module.mapping.path + " found other poll functions than " +
             site.name + ", which a live context uses: the live one is taken");
      }
    }
  }

  // ---- exported functions ----

  void add_library(std::string_view name, bool is_libibverbs) {
    for (const Mapping& mapping : map_.mappings()) {
      if (!is_library(mapping, name)) continue;
      if (is_libibverbs) libibverbs_loaded_ = true;
      const auto module = files_.get(mapping);
      if (!module) return note(module.error().message);
      if (is_libibverbs) add_hooks(**module);
      if (!options_.control_verbs) return;
      for (const std::string_view verb : control_verbs()) {
        add_exported(SiteRole::verb, **module, verb);
      }
      return;
    }
  }

  void add_hooks(const ModuleFile& module) {
    add_exported(SiteRole::get_cq_event, module, wait_for_completion_event);
    for (const std::string_view hook : open_hooks()) {
      hook_found_ = add_exported(SiteRole::open_hook, module, hook);
      if (hook_found_) return;
    }
  }

  bool add_exported(SiteRole role, const ModuleFile& module, std::string_view name) {
    const ElfSymbol* symbol = module.image.function(name);
    if (symbol == nullptr) return false;
    const std::string version = symbol->version.empty() ? "" : "@" + symbol->version;
    Site* site = add_site(role, module, symbol->address, "symbol " + std::string(name) + version);
    if (site != nullptr) site->name = name;
    return site != nullptr;
  }

  // ---- named by the user ----

  Status add_user_sites() {
    for (const std::string& text : options_.poll_sites) {
      const auto spec = parse_poll_site(text);
      if (!spec) return spec.error();
      const auto mapping = find_poll_site_file(*spec, map_);
      if (!mapping) return mapping.error();
      const auto module = files_.get(**mapping);
      if (!module) return module.error();
      const ElfImage* debug = (*module)->debug ? &*(*module)->debug : nullptr;
      const auto address = resolve_poll_site(*spec, (*module)->image, debug, set_);
      if (!address) return address.error();
      if (Status failed = add_user_site(*spec, **module, *address)) return failed;
    }
    return std::nullopt;
  }

  Status add_user_site(const PollSiteSpec& spec, const ModuleFile& module, uint64_t file_address) {
    const auto extent = module.image.extent_of(file_address);
    const bool within = spec.offset && extent && extent->start != file_address;
    Site* site = add_site(SiteRole::user, module, within ? extent->start : file_address,
                          "--poll-site " + spec.text);
    if (site == nullptr) {
      return Error{ExitCode::no_poll_function,
                   "--poll-site " + spec.text + ": no probe can be put there"};
    }
    if (!within) return std::nullopt;
    const auto instruction = set_.decode(module.image.read(file_address, 16), file_address);
    if (!instruction || !instruction->probeable) {
      return Error{ExitCode::no_poll_function,
                   "--poll-site " + spec.text + ": the kernel takes no probe on that instruction"};
    }
    site->name += "+" + hex(file_address - extent->start);
    site->entry_offset = *spec.offset;
    site->entry_execution =
        instruction->emulated ? ProbeExecution::emulated : ProbeExecution::single_stepped;
    site->arguments_intact = false;
    return std::nullopt;
  }

  // ---- nothing found ----

  Status check_poll_sites() const {
    if (std::any_of(sites_.sites.begin(), sites_.sites.end(), is_poll)) return std::nullopt;
    const std::string who =
        "process " + std::to_string(process_.pid()) + " (" + process_.executable() + ")";
    const std::string otherwise =
        "; if it polls by other means pass --poll-site FILE:SYMBOL or FILE+0xOFFSET";
    const std::string looked =
        "no ibv_context in " + std::to_string(scanned_bytes_ >> 20) + " MiB of its memory";
    if (!libibverbs_loaded_) {
      return Error{ExitCode::no_poll_function,
                   who + " has not loaded libibverbs, and there is " + looked +
                       ": attach once it has opened its RDMA device" + otherwise};
    }
    if (options_.wait_for_context && hook_found_) return std::nullopt;
    return Error{ExitCode::no_poll_function,
                 who + " has loaded libibverbs but opened no RDMA device: there is " + looked +
                     ", nor a poll function in the " + std::to_string(providers_seen_) +
                     " provider libraries it maps" + otherwise};
  }

  const Process& process_;
  const DiscoveryOptions& options_;
  const InstructionSet& set_;
  const MemoryMap map_;
  ModuleFiles files_;
  Sites sites_;
  uint64_t scanned_bytes_ = 0;
  size_t providers_seen_ = 0;
  bool libibverbs_loaded_ = false;
  bool hook_found_ = false;
  bool saw_no_device_ = false;
};

}  // namespace

Result<Sites> discover(pid_t pid, const DiscoveryOptions& options) {
  const auto process = Process::open(pid);
  if (!process) return process.error();
  return discover(*process, options);
}

Result<Sites> discover(const Process& process, const DiscoveryOptions& options) {
  const InstructionSet* set = instruction_set_for(process.elf_machine());
  if (set == nullptr) {
    return Error{ExitCode::other, "the instructions of ELF machine " +
                                      std::to_string(process.elf_machine()) +
                                      " are not supported: no probe can be placed"};
  }
  auto map = process.memory_map();
  if (!map) return map.error();
  if (Status denied = process.check_memory_access(*map)) return *denied;
  Result<Sites> sites = Discovery(process, options, *set, std::move(*map)).run();
  if (!sites && !process.has_memory()) {
    return Error{ExitCode::no_process, "process " + std::to_string(process.pid()) +
                                           " exited while it was being looked at"};
  }
  return sites;
}

}  // namespace pollgap
