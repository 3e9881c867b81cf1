# SPDX-License-Identifier: Apache-2.0
# The soft adapter's parts that need no device.
find_package(GTest REQUIRED)
add_executable(soft_hca_unit_test
  soft_hca_packet_ring_test.cc
  soft_hca_timer_wheel_test.cc)
target_link_libraries(soft_hca_unit_test PRIVATE pollgap_soft_hca GTest::gtest_main)
add_test(NAME soft_hca_unit COMMAND soft_hca_unit_test)
set_tests_properties(soft_hca_unit PROPERTIES LABELS unit TIMEOUT 120)
