# SPDX-License-Identifier: Apache-2.0
# The self-test on this machine's kernel.
add_test(NAME selftest
  COMMAND ${POLLGAP_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/selftest_test.py $<TARGET_FILE:pollgap>)
set_tests_properties(selftest PROPERTIES LABELS native TIMEOUT 600)
