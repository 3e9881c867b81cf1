# SPDX-License-Identifier: Apache-2.0
# The soft adapter under the distribution's libibverbs and libmlx5. `--sleep`: with a device thread
# that sleeps between its rounds. `--unprivileged`: so, and without a capability.
pkg_check_modules(IBVERBS REQUIRED IMPORTED_TARGET libibverbs)
find_package(GTest REQUIRED)
add_executable(soft_hca_test
  soft_hca_faults_test.cc
  soft_hca_features_test.cc
  soft_hca_test.cc)
target_link_libraries(soft_hca_test pollgap_soft_hca PkgConfig::IBVERBS GTest::gtest)
add_test(NAME soft_hca COMMAND soft_hca_test)
add_test(NAME soft_hca_sleeping COMMAND soft_hca_test --sleep)
add_test(NAME soft_hca_unprivileged COMMAND soft_hca_test --unprivileged)
set_tests_properties(soft_hca soft_hca_sleeping soft_hca_unprivileged PROPERTIES LABELS native TIMEOUT 300)

# A million operations under random faults: as it ships, and with the adapter's own code under the
# sanitizers.
add_executable(soft_hca_random_test soft_hca_random_test.cc)
target_link_libraries(soft_hca_random_test pollgap_soft_hca PkgConfig::IBVERBS GTest::gtest)
add_test(NAME soft_hca_random COMMAND soft_hca_random_test)
set_tests_properties(soft_hca_random PROPERTIES LABELS native TIMEOUT 600)
if(NOT POLLGAP_SANITIZE AND NOT POLLGAP_FUZZ)
  get_target_property(soft_hca_sources pollgap_soft_hca SOURCES)
  get_target_property(soft_hca_directory pollgap_soft_hca SOURCE_DIR)
  list(TRANSFORM soft_hca_sources PREPEND ${soft_hca_directory}/)
  # ThreadSanitizer's own start calls mmap, which the adapter interposes, before it can be told of it.
  set_source_files_properties(${soft_hca_directory}/interpose.cc
                              PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
  set(sanitizers_address address,undefined)
  set(sanitizers_thread thread)
  foreach(sanitizer address thread)
    set(program soft_hca_random_test_${sanitizer})
    add_executable(${program} soft_hca_random_test.cc ${soft_hca_sources})
    set(flags -fsanitize=${sanitizers_${sanitizer}} -fno-sanitize-recover=all -U_FORTIFY_SOURCE)
    target_compile_options(${program} PRIVATE ${flags})
    # clang-tidy would look at the adapter's sources once for each command, and its va_list check is
    # right only in the first: it keeps the names it looks for between them.
    set_target_properties(${program} PROPERTIES EXPORT_COMPILE_COMMANDS OFF)
    target_link_options(${program} PRIVATE ${flags} -rdynamic)
    target_link_libraries(${program} PkgConfig::IBVERBS GTest::gtest Threads::Threads
                          ${CMAKE_DL_LIBS})
    add_test(NAME soft_hca_random_${sanitizer} COMMAND ${program})
    set_tests_properties(soft_hca_random_${sanitizer} PROPERTIES LABELS native TIMEOUT 1200)
  endforeach()
endif()
