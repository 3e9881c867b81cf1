// SPDX-License-Identifier: Apache-2.0
#include "probes/static_ops.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <span>
#include <unordered_map>

namespace pollgap {
namespace {

constexpr std::string_view set_ops = "verbs_set_ops";
constexpr uint64_t entry_bytes = 8;

// The number at the front of the text, 0 where there is none.
int leading_number(std::string_view text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

int number_after(std::string_view text, std::string_view mark) {
  const size_t at = text.rfind(mark);
  return at == std::string_view::npos ? 0 : leading_number(text.substr(at + mark.size()));
}

// Where poll_cq stands in verbs_context_ops (rdma-core, libibverbs/driver.h). post_recv and
// post_send follow it in every version. The members are sorted by name, so each new verb moved it.
std::vector<uint64_t> poll_cq_offsets(VerbsVersion version) {
  const int release = version.release;
  switch (version.private_abi) {
    case 34:  // v34 to v56
      if (release == 34) return {416};
      return {424};
    case 57:  // v57, v58
      return {424};
    case 59:  // v59 to v63
      if (release >= 62) return {448};
      if (release != 0) return {440};
      return {448, 440};
    case 64:
      return {464};
    case 65:
      return {496};
    default:
      return {424, 448, 440, 464, 496, 416};
  }
}

// The words of the file that the loader fills with addresses, and the functions of other files
// whose addresses it puts where.
class LoadedWords {
 public:
  LoadedWords(const ElfImage& image, const InstructionSet& set) : image_(image) {
    for (const ElfRelocation& relocation : image.relocations()) {
      switch (set.relocation_kind(relocation.type)) {
        case RelocationKind::relative:
          words_[relocation.address] = static_cast<uint64_t>(relocation.addend);
          break;
        case RelocationKind::symbol:
          if (relocation.symbol_address != 0) {
            words_[relocation.address] =
                relocation.symbol_address + static_cast<uint64_t>(relocation.addend);
          }
          if (relocation.symbol == set_ops) {
            slots_.insert(relocation.address);
            version_ = relocation.symbol_version;
          }
          break;
        case RelocationKind::other:
          break;
      }
    }
    for (const auto& [address, value] : image.packed_relocations()) words_[address] = value;
  }

  // The function whose address the loader puts at that place, 0: none.
  uint64_t function_at(uint64_t address) const {
    const auto word = words_.find(address);
    return word != words_.end() && image_.is_code(word->second) ? word->second : 0;
  }
  // The places that come to hold the address of verbs_set_ops.
  const std::set<uint64_t>& set_ops_slots() const { return slots_; }
  int private_abi() const { return number_after(version_, "IBVERBS_PRIVATE_"); }

 private:
  const ElfImage& image_;
  std::unordered_map<uint64_t, uint64_t> words_;
  std::set<uint64_t> slots_;
  std::string version_;
};

// Finds the constants that the file's code passes to verbs_set_ops() as its second argument.
class CallScan {
 public:
  CallScan(const ElfImage& image, const InstructionSet& set, const LoadedWords& words)
      : image_(image), set_(set), words_(words) {
    // In a program that libibverbs is linked into, it is a function of the file itself.
    if (const ElfSymbol* own = image.function(set_ops)) own_ = own->address;
  }

  std::vector<uint64_t> tables() {
    for (const ElfSection& section : image_.sections()) {
      if (section.executable) scan(image_.read(section.address, section.size), section.address);
    }
    return tables_;
  }

 private:
  void scan(std::span<const uint8_t> code, uint64_t address) {
    uint64_t argument = 0;  // the second argument's register, 0: unknown
    for (uint64_t at = 0; at < code.size();) {
      const auto instruction = set_.decode(code.subspan(at), address + at);
      if (!instruction) {
        argument = 0;
        at += set_.alignment();
        continue;
      }
      const bool transfers = instruction->flow == Flow::call || instruction->flow == Flow::leave;
      if (transfers && argument != 0 && goes_to_set_ops(*instruction)) add(argument);
      if (transfers) {
        argument = 0;
      } else if (instruction->writes_second_argument) {
        argument = instruction->second_argument.value_or(0);
      }
      at += instruction->length;
    }
  }

  void add(uint64_t table) {
    if (std::find(tables_.begin(), tables_.end(), table) == tables_.end()) tables_.push_back(table);
  }

  bool goes_to_set_ops(const Instruction& instruction) {
    if (instruction.target_slot) return words_.set_ops_slots().contains(*instruction.target_slot);
    if (!instruction.target) return false;
    if (own_ != 0 && *instruction.target == own_) return true;
    auto [known, is_new] = stubs_.try_emplace(*instruction.target, false);
    if (is_new) known->second = is_stub(*instruction.target);
    return known->second;
  }

  // An entry of the procedure linkage table: at most a landing pad, then a jump through the slot.
  bool is_stub(uint64_t address) const {
    const std::vector<uint8_t> code = image_.read(address, 32);
    for (uint64_t at = 0, count = 0; at < code.size() && count < 3; ++count) {
      const auto instruction = set_.decode(std::span(code).subspan(at), address + at);
      if (!instruction) return false;
      if (instruction->flow != Flow::next) {
        return instruction->target_slot &&
               words_.set_ops_slots().contains(*instruction->target_slot);
      }
      at += instruction->length;
    }
    return false;
  }

  const ElfImage& image_;
  const InstructionSet& set_;
  const LoadedWords& words_;
  uint64_t own_ = 0;
  std::map<uint64_t, bool> stubs_;
  std::vector<uint64_t> tables_;
};

// The tables, read as if poll_cq stood at that offset. Where no table has both a poll and a post
// function there, the layout is another.
std::vector<StaticOps> read_tables(const std::vector<uint64_t>& tables, uint64_t poll_cq_offset,
                                   const ElfImage& image, const LoadedWords& words) {
  std::vector<StaticOps> found;
  bool posts = false;
  for (const uint64_t table : tables) {
    StaticOps ops;
    ops.table = table;
    ops.poll_cq = words.function_at(table + poll_cq_offset);
    ops.post_recv = words.function_at(table + poll_cq_offset + entry_bytes);
    ops.post_send = words.function_at(table + poll_cq_offset + 2 * entry_bytes);
    posts = posts || (ops.post_recv != 0 && ops.post_send != 0);
    const auto extent = image.extent_of(ops.poll_cq);
    if (ops.poll_cq != 0 && (!extent || extent->start == ops.poll_cq)) found.push_back(ops);
  }
  return posts ? found : std::vector<StaticOps>();
}

}  // namespace

VerbsVersion verbs_version_of(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  VerbsVersion version;
  version.private_abi = number_after(name, "-rdmav");
  // libNAME.so.MAJOR.MINOR.RELEASE.PATCH
  size_t at = name.find(".so.");
  if (at == std::string_view::npos) return version;
  std::string_view rest = name.substr(at + 4);
  std::vector<int> numbers;
  while (!rest.empty()) {
    numbers.push_back(leading_number(rest));
    at = std::min(rest.find('.'), rest.size() - 1);
    rest.remove_prefix(at + 1);
  }
  if (numbers.size() == 4) version.release = numbers[2];
  return version;
}

Result<std::vector<StaticOps>> find_static_ops(const ElfImage& provider, const InstructionSet& set,
                                               VerbsVersion version) {
  const LoadedWords words(provider, set);
  if (words.private_abi() != 0) version.private_abi = words.private_abi();
  CallScan calls(provider, set, words);
  const std::vector<uint64_t> tables = calls.tables();
  if (tables.empty()) {
    return Error{ExitCode::other, provider.name() +
                                      ": no call of verbs_set_ops() with a constant table of "
                                      "functions was found in its code"};
  }
  for (const uint64_t offset : poll_cq_offsets(version)) {
    auto found = read_tables(tables, offset, provider, words);
    if (!found.empty()) return found;
  }
  return Error{ExitCode::other, provider.name() +
                                    ": its tables of functions hold no constant poll function "
                                    "(private ABI " +
                                    std::to_string(version.private_abi) + ", rdma-core release " +
                                    std::to_string(version.release) + ")"};
}

}  // namespace pollgap
