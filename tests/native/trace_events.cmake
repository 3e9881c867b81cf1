# SPDX-License-Identifier: Apache-2.0
# Kernel tracepoints as evidence: trace_events_test.py.
find_program(POLLGAP_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)
add_test(NAME trace_events
         COMMAND ${POLLGAP_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/trace_events_test.py --build ${CMAKE_BINARY_DIR})
set_tests_properties(trace_events PROPERTIES LABELS native RUN_SERIAL ON TIMEOUT 900)
