# SPDX-License-Identifier: Apache-2.0
# The accuracy runner's own judge.
find_program(POLLGAP_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)
add_test(NAME accuracy_judge COMMAND ${POLLGAP_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/accuracy_judge_test.py)
set_tests_properties(accuracy_judge PROPERTIES LABELS unit)
