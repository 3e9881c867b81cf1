# SPDX-License-Identifier: Apache-2.0
# Fuzzer of what is read again and again from an untrusted target's memory.
if(POLLGAP_FUZZ)
  add_executable(fuzz_queue_reader fuzz_queue_reader.cc)
  target_link_libraries(fuzz_queue_reader PRIVATE pollgap_observe)
  target_link_options(fuzz_queue_reader PRIVATE -fsanitize=fuzzer)
endif()
