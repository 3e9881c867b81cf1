# SPDX-License-Identifier: Apache-2.0
# The soft adapter under the distribution's libibverbs and libmlx5. `--sleep`: with a device thread
# that sleeps between its rounds.
pkg_check_modules(IBVERBS REQUIRED IMPORTED_TARGET libibverbs)
find_package(GTest REQUIRED)
add_executable(soft_hca_test
  soft_hca_faults_test.cc
  soft_hca_features_test.cc
  soft_hca_test.cc)
target_link_libraries(soft_hca_test pollgap_soft_hca PkgConfig::IBVERBS GTest::gtest)
add_test(NAME soft_hca COMMAND soft_hca_test)
add_test(NAME soft_hca_sleeping COMMAND soft_hca_test --sleep)
set_tests_properties(soft_hca soft_hca_sleeping PROPERTIES LABELS native TIMEOUT 300)

# A million operations under random faults.
add_executable(soft_hca_random_test soft_hca_random_test.cc)
target_link_libraries(soft_hca_random_test pollgap_soft_hca PkgConfig::IBVERBS GTest::gtest)
add_test(NAME soft_hca_random COMMAND soft_hca_random_test)
set_tests_properties(soft_hca_random PROPERTIES LABELS native TIMEOUT 600)
