# SPDX-License-Identifier: Apache-2.0
# What the self-test says of ground truth and gaps.
find_package(GTest REQUIRED)
include(GoogleTest)
add_executable(selftest_test selftest_comparison_test.cc)
target_link_libraries(selftest_test PRIVATE pollgap_selftest GTest::gtest_main)
gtest_discover_tests(selftest_test DISCOVERY_MODE PRE_TEST PROPERTIES LABELS unit)
