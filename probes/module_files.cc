// SPDX-License-Identifier: Apache-2.0
#include "probes/module_files.h"

#include "probes/debug_file.h"

namespace pollgap {
namespace {

Result<std::unique_ptr<ModuleFile>> load(const Process& process, const Mapping& mapping) {
  auto opened = process.open_mapped_file(mapping);
  if (!opened) return opened.error();
  auto image = ElfImage::open(std::move(opened->fd), mapping.path);
  if (!image) return image.error();
  auto module = std::make_unique<ModuleFile>(
      ModuleFile{mapping, opened->path, std::move(*image), std::nullopt, {}});
  DebugFile debug = find_debug_file(debug_file_query(module->image, mapping.path), process);
  if (debug.fd) {
    auto debug_image = ElfImage::open(std::move(debug.fd), debug.path);
    if (debug_image) {
      module->debug = std::move(*debug_image);
      module->debug_path = debug.path;
    }
  }
  return module;
}

}  // namespace

Result<const ModuleFile*> ModuleFiles::get(const Mapping& mapping) {
  const auto key = std::pair(mapping.path, mapping.inode);
  auto found = files_.find(key);
  if (found == files_.end()) found = files_.emplace(key, load(process_, mapping)).first;
  if (!found->second) return found->second.error();
  return static_cast<const ModuleFile*>(found->second->get());
}

std::optional<uint64_t> ModuleFiles::file_address(const ModuleFile& module, const Mapping& mapping,
                                                  uint64_t address) {
  return module.image.address_of(address - mapping.start + mapping.offset);
}

std::optional<uint64_t> ModuleFiles::process_address(const ModuleFile& module,
                                                     uint64_t file_address) const {
  const auto offset = module.image.offset_of(file_address);
  if (!offset) return std::nullopt;
  const Mapping* mapping = map_.find_executable(module.mapping, *offset);
  if (mapping == nullptr) return std::nullopt;
  return mapping->start + (*offset - mapping->offset);
}

}  // namespace pollgap
