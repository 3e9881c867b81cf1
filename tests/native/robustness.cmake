# SPDX-License-Identifier: Apache-2.0
# Bad targets, bad moments and bad surroundings: robustness_test.py, one CTest test a case.
find_program(POLLGAP_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)

add_executable(named_poll_target ${CMAKE_CURRENT_LIST_DIR}/named_poll_target.cc)
target_link_options(named_poll_target PRIVATE -rdynamic)

set(robustness_test ${CMAKE_CURRENT_LIST_DIR}/robustness_test.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${robustness_test})
execute_process(COMMAND ${POLLGAP_PYTHON} ${robustness_test} --list
                OUTPUT_VARIABLE cases OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" cases "${cases}")
foreach(case IN LISTS cases)
  add_test(NAME robustness.${case}
           COMMAND ${POLLGAP_PYTHON} ${robustness_test} --build ${CMAKE_BINARY_DIR} ${case})
  set_tests_properties(robustness.${case} PROPERTIES LABELS native RUN_SERIAL ON TIMEOUT 300)
endforeach()
