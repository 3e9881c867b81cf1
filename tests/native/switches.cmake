# SPDX-License-Identifier: Apache-2.0
# The agent keeps up with tasks that do nothing but switch, on all cores.
add_test(NAME switches
  COMMAND ${POLLGAP_PYTHON} ${CMAKE_SOURCE_DIR}/tests/bench/switches --build ${CMAKE_BINARY_DIR}
    --seconds 5 --pairs 1 --most-lost 0)
set_tests_properties(switches PROPERTIES LABELS native RUN_SERIAL ON TIMEOUT 300)
