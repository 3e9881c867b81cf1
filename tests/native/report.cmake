# SPDX-License-Identifier: Apache-2.0
# The command line on captures and reports, and its refusals: cli_test.py.
find_program(POLLGAP_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)

add_executable(report_capture report_capture.cc)
target_link_libraries(report_capture PRIVATE ledger_stream pollgap_capture_file)

add_test(NAME cli
  COMMAND ${POLLGAP_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/cli_test.py --pollgap $<TARGET_FILE:pollgap>
    --capture-writer $<TARGET_FILE:report_capture> --schema ${CMAKE_SOURCE_DIR}/tools/report.schema.json)
set_tests_properties(cli PROPERTIES LABELS native TIMEOUT 600)
