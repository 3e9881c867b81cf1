# SPDX-License-Identifier: Apache-2.0
find_package(benchmark REQUIRED)
add_executable(report_bench report_bench.cc)
target_link_libraries(report_bench PRIVATE report_sample_gaps benchmark::benchmark)
# The figures are for people; the test shows that it runs.
add_test(NAME report_bench COMMAND report_bench --benchmark_min_time=0.01)
set_tests_properties(report_bench PROPERTIES LABELS bench TIMEOUT 600)
