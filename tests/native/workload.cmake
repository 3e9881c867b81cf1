# SPDX-License-Identifier: Apache-2.0
# The workload against its own log: workload_test.py, one CTest test a case. A case that this machine
# cannot do is reported as skipped, with the workload's reason.
find_program(POLLGAP_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)

set(workload_test ${CMAKE_CURRENT_LIST_DIR}/workload_test.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${workload_test})
execute_process(COMMAND ${POLLGAP_PYTHON} ${workload_test} --list
                OUTPUT_VARIABLE cases OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" cases "${cases}")
foreach(case IN LISTS cases)
  add_test(NAME workload.${case}
           COMMAND ${POLLGAP_PYTHON} ${workload_test} --program $<TARGET_FILE:pollgap-workload> ${case})
  set_tests_properties(workload.${case} PROPERTIES
    LABELS native RUN_SERIAL ON SKIP_RETURN_CODE 77 TIMEOUT 120)
endforeach()
