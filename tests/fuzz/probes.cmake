# SPDX-License-Identifier: Apache-2.0
# Fuzzers of what discovery reads from an untrusted target: its files and its memory.
if(POLLGAP_FUZZ)
  foreach(subject elf_image live_context)
    add_executable(fuzz_${subject} fuzz_${subject}.cc)
    target_link_libraries(fuzz_${subject} PRIVATE pollgap_probes)
    target_link_options(fuzz_${subject} PRIVATE -fsanitize=fuzzer)
  endforeach()
endif()
