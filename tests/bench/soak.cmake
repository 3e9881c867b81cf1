# SPDX-License-Identifier: Apache-2.0
# Two minutes of what tests/bench/soak does in an hour. Where the machine is shared, a probe and a look cost
# several times as much at times.
find_program(POLLGAP_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)
add_test(NAME soak
  COMMAND ${POLLGAP_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/soak --build ${CMAKE_BINARY_DIR} --seconds 120
          --budget 2% --slack 2)
set_tests_properties(soak PROPERTIES LABELS bench RUN_SERIAL ON TIMEOUT 600)
