# SPDX-License-Identifier: Apache-2.0
# Fuzzers of the capture reader and the correlator: a capture may come from anybody.
if(POLLGAP_FUZZ)
  foreach(subject capture_reader correlator)
    add_executable(fuzz_${subject} fuzz_${subject}.cc)
    target_link_libraries(fuzz_${subject} PRIVATE pollgap_ledger pollgap_capture_file)
    target_link_options(fuzz_${subject} PRIVATE -fsanitize=fuzzer)
    add_test(NAME fuzz_${subject} COMMAND fuzz_${subject} -max_total_time=60 -rss_limit_mb=2048
      WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
    set_tests_properties(fuzz_${subject} PROPERTIES LABELS fuzz TIMEOUT 300)
  endforeach()
endif()
