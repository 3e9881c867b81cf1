# SPDX-License-Identifier: Apache-2.0
# Tests of agent/report.
find_package(GTest REQUIRED)
include(GoogleTest)

add_library(report_sample_gaps STATIC report_sample.cc)
target_link_libraries(report_sample_gaps PUBLIC pollgap_report)

add_executable(report_test
  report_advice_test.cc
  report_atomic_file_test.cc
  report_duration_test.cc
  report_escape_test.cc
  report_json_test.cc
  report_summary_test.cc
  report_text_test.cc)
target_compile_definitions(report_test PRIVATE
  POLLGAP_GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/report_golden")
target_link_libraries(report_test PRIVATE report_sample_gaps GTest::gtest_main)
gtest_discover_tests(report_test DISCOVERY_MODE PRE_TEST PROPERTIES LABELS unit)

add_executable(report_sample report_sample_main.cc)
target_link_libraries(report_sample PRIVATE report_sample_gaps)
add_test(NAME report_schema
  COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/report_schema_test.py
    $<TARGET_FILE:report_sample> ${CMAKE_SOURCE_DIR}/tools/report.schema.json)
set_tests_properties(report_schema PROPERTIES LABELS unit)
