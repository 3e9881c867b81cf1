# SPDX-License-Identifier: Apache-2.0
# The workload's parts that need no device.
find_package(GTest REQUIRED)
add_executable(workload_unit_test
  workload_gap_detector_test.cc
  workload_histogram_test.cc
  workload_options_test.cc
  workload_tsc_clock_test.cc)
target_link_libraries(workload_unit_test PRIVATE pollgap_workload GTest::gtest_main)
add_test(NAME workload_unit COMMAND workload_unit_test)
set_tests_properties(workload_unit PROPERTIES LABELS unit TIMEOUT 120)
