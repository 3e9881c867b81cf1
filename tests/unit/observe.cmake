# SPDX-License-Identifier: Apache-2.0
# Tests of agent/observe.
find_package(GTest REQUIRED)
include(GoogleTest)

add_executable(observe_test observe_adapter_clock_test.cc observe_cq_watch_test.cc observe_gaps_test.cc)
target_link_libraries(observe_test PRIVATE pollgap_observe GTest::gtest_main)
gtest_discover_tests(observe_test DISCOVERY_MODE PRE_TEST PROPERTIES LABELS unit)
