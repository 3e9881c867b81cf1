# SPDX-License-Identifier: Apache-2.0
# Tests of agent/timeline, agent/ledger and agent/capture_file.
find_package(GTest REQUIRED)
find_package(nlohmann_json REQUIRED)
include(GoogleTest)

add_library(ledger_stream STATIC ledger_random_stream.cc ledger_stream.cc)
target_link_libraries(ledger_stream PUBLIC pollgap_ledger GTest::gtest)

add_executable(ledger_test
  ledger_adapter_test.cc
  ledger_capture_file_test.cc
  ledger_off_cpu_test.cc
  ledger_on_cpu_test.cc
  ledger_property_test.cc
  ledger_smi_test.cc
  ledger_stream_test.cc)
target_link_libraries(ledger_test PRIVATE ledger_stream pollgap_capture_file
  nlohmann_json::nlohmann_json GTest::gtest_main)
gtest_discover_tests(ledger_test DISCOVERY_MODE PRE_TEST PROPERTIES LABELS unit TIMEOUT 300)
