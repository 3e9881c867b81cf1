# SPDX-License-Identifier: Apache-2.0
# Tests of agent/capture: the parts of it that need no kernel.
find_package(GTest REQUIRED)
find_package(nlohmann_json REQUIRED)
include(GoogleTest)

add_executable(capture_test capture_governor_test.cc capture_interrupt_facts_test.cc capture_trace_format_test.cc)
target_compile_definitions(capture_test PRIVATE
  POLLGAP_TRACE_FORMATS="${CMAKE_CURRENT_SOURCE_DIR}/trace_formats")
target_link_libraries(capture_test PRIVATE pollgap_capture nlohmann_json::nlohmann_json
  GTest::gtest_main)
gtest_discover_tests(capture_test DISCOVERY_MODE PRE_TEST PROPERTIES LABELS unit)
