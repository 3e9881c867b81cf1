# SPDX-License-Identifier: Apache-2.0
find_package(benchmark REQUIRED)
add_executable(correlator_bench correlator_bench.cc)
target_link_libraries(correlator_bench PRIVATE pollgap_ledger benchmark::benchmark)
# The figures are for people; the test shows that it runs and that memory stays flat.
add_test(NAME correlator_bench COMMAND correlator_bench --benchmark_min_time=0.05)
set_tests_properties(correlator_bench PROPERTIES LABELS bench TIMEOUT 300)
