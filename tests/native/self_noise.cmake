# SPDX-License-Identifier: Apache-2.0
# The interrupts that the agent causes: self_noise_test.py.
add_test(NAME self_noise
  COMMAND ${POLLGAP_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/self_noise_test.py --build ${CMAKE_BINARY_DIR})
set_tests_properties(self_noise PROPERTIES LABELS native RUN_SERIAL ON TIMEOUT 600)
