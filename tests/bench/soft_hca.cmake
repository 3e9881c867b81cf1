# SPDX-License-Identifier: Apache-2.0
find_package(benchmark REQUIRED)
pkg_check_modules(IBVERBS REQUIRED IMPORTED_TARGET libibverbs)
add_executable(soft_hca_bench soft_hca_bench.cc)
target_link_libraries(soft_hca_bench PRIVATE pollgap_soft_hca PkgConfig::IBVERBS benchmark::benchmark)
# The figures are for people; the test shows that it runs, and that polls are libmlx5's own.
add_test(NAME soft_hca_bench COMMAND soft_hca_bench --benchmark_min_time=0.05)
set_tests_properties(soft_hca_bench PROPERTIES LABELS bench TIMEOUT 300)
