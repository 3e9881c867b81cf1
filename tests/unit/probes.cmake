# SPDX-License-Identifier: Apache-2.0
# Finding where to attach: no kernel feature needed beyond /proc.
find_package(GTest REQUIRED)

# The same functions with and without landing pads, as a distribution's compiler makes them.
function(pollgap_prologues name protection)
  add_library(${name} MODULE ${CMAKE_CURRENT_LIST_DIR}/probes_prologues.cc)
  target_compile_options(${name} PRIVATE -O2 -fPIC -fomit-frame-pointer -fno-sanitize=all
                         -fcf-protection=${protection})
  target_link_options(${name} PRIVATE -fno-sanitize=all)
endfunction()
pollgap_prologues(probes_prologues_cet full)
pollgap_prologues(probes_prologues_plain none)

# A stripped library whose debug file lies where .gnu_debuglink leads.
find_program(CMAKE_OBJCOPY NAMES objcopy REQUIRED)
set(stripped ${CMAKE_CURRENT_BINARY_DIR}/probes_stripped.so)
set(stripped_debug ${CMAKE_CURRENT_BINARY_DIR}/.debug/probes_stripped.so.debug)
target_compile_options(probes_prologues_plain PRIVATE -g)
target_link_options(probes_prologues_plain PRIVATE -Wl,--build-id)
add_custom_command(OUTPUT ${stripped} ${stripped_debug}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/.debug
  COMMAND ${CMAKE_OBJCOPY} --only-keep-debug $<TARGET_FILE:probes_prologues_plain> ${stripped_debug}
  COMMAND ${CMAKE_OBJCOPY} --strip-all --add-gnu-debuglink=${stripped_debug}
          $<TARGET_FILE:probes_prologues_plain> ${stripped}
  DEPENDS probes_prologues_plain VERBATIM)
add_custom_target(probes_stripped DEPENDS ${stripped})

find_library(POLLGAP_LIBIBVERBS NAMES libibverbs.so.1 REQUIRED)
find_library(POLLGAP_LIBMLX5 NAMES libmlx5.so.1 REQUIRED)
get_filename_component(pollgap_library_directory ${POLLGAP_LIBIBVERBS} DIRECTORY)

add_executable(probes_unit_test
  probes_cq_layout_test.cc
  probes_elf_image_test.cc
  probes_instruction_choice_test.cc
  probes_live_context_test.cc
  probes_poll_site_test.cc
  probes_process_test.cc
  probes_queue_reader_test.cc
  probes_static_ops_test.cc
  probes_symbols_test.cc)
target_compile_definitions(probes_unit_test PRIVATE
  POLLGAP_PROLOGUES_CET="$<TARGET_FILE:probes_prologues_cet>"
  POLLGAP_PROLOGUES_PLAIN="$<TARGET_FILE:probes_prologues_plain>"
  POLLGAP_STRIPPED="${stripped}"
  POLLGAP_LIBIBVERBS="${POLLGAP_LIBIBVERBS}"
  POLLGAP_LIBMLX5="${POLLGAP_LIBMLX5}"
  POLLGAP_LIBMLX5_44_BUILD_ID="800c6ca768baceb592682738a03643f11379cbdd"
  POLLGAP_PROVIDER_DIRECTORY="${pollgap_library_directory}/libibverbs"
  POLLGAP_SMALL_PROVIDER="${pollgap_library_directory}/libibverbs/libsiw-rdmav34.so")
target_link_libraries(probes_unit_test PRIVATE pollgap_probes GTest::gtest_main)
add_dependencies(probes_unit_test probes_prologues_cet probes_prologues_plain probes_stripped)
add_test(NAME probes_unit_test COMMAND probes_unit_test)
set_tests_properties(probes_unit_test PROPERTIES LABELS unit TIMEOUT 300)
