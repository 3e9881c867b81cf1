# SPDX-License-Identifier: Apache-2.0
# Discovery in a live process, and real uprobes: needs root and perf uprobes.
find_package(GTest REQUIRED)
pkg_check_modules(ibverbs REQUIRED IMPORTED_TARGET libibverbs)

add_executable(probes_live_target probes_live_target.cc)
target_link_libraries(probes_live_target PRIVATE pollgap_soft_hca PkgConfig::ibverbs)

add_executable(probes_live_test probes_live_test.cc)
target_compile_definitions(probes_live_test PRIVATE
  POLLGAP_LIVE_TARGET="$<TARGET_FILE:probes_live_target>")
target_link_libraries(probes_live_test PRIVATE pollgap_probes GTest::gtest_main)
add_dependencies(probes_live_test probes_live_target)
add_test(NAME probes_live_test COMMAND probes_live_test)
set_tests_properties(probes_live_test PROPERTIES LABELS native TIMEOUT 300)
