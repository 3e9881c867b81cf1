# SPDX-License-Identifier: Apache-2.0
# What CQEs tell of when and why they came: completion_stamps_test.py.
add_test(NAME completion_stamps
  COMMAND ${POLLGAP_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/completion_stamps_test.py
          --build ${CMAKE_BINARY_DIR})
set_tests_properties(completion_stamps PROPERTIES LABELS native RUN_SERIAL ON TIMEOUT 600)
