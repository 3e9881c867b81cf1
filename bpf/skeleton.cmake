# SPDX-License-Identifier: Apache-2.0
# BPF programs: compiled with clang, linked with bpftool, and made into a skeleton header.
include_guard(GLOBAL)

find_program(POLLGAP_BPF_CLANG NAMES clang clang-14 clang-15 clang-16 clang-17 clang-18 clang-19 REQUIRED)
find_program(POLLGAP_BPFTOOL NAMES bpftool PATHS /usr/sbin /sbin REQUIRED)
pkg_check_modules(libbpf REQUIRED IMPORTED_TARGET GLOBAL libbpf>=1.1)

# What bpf_tracing.h of libbpf calls the machine whose registers a program reads.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(POLLGAP_BPF_ARCH x86 CACHE INTERNAL "")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(POLLGAP_BPF_ARCH arm64 CACHE INTERNAL "")
else()
  message(FATAL_ERROR "pollgap has no BPF programs for ${CMAKE_SYSTEM_PROCESSOR}: only for x86_64 and aarch64")
endif()

# pollgap_bpf_skeleton(TARGET SOURCE.bpf.c...)
#
# Makes the interface library TARGET out of one or more BPF source files, which are linked into one
# object and may share maps and globals. A program that links TARGET includes "TARGET.skel.h" (struct
# TARGET, TARGET__open(), ...) and gets libbpf. TARGET must be a C identifier. A source sees the
# project's root, and is compiled again when a header that it includes changes.
function(pollgap_bpf_skeleton target)
  set(directory ${CMAKE_CURRENT_BINARY_DIR}/${target}.bpf)
  file(MAKE_DIRECTORY ${directory})

  set(system_include)
  if(CMAKE_LIBRARY_ARCHITECTURE)  # Debian's asm/types.h: clang -target bpf does not look there
    set(system_include -idirafter /usr/include/${CMAKE_LIBRARY_ARCHITECTURE})
  endif()

  set(objects)
  foreach(source IN LISTS ARGN)
    get_filename_component(source_path ${source} ABSOLUTE)
    get_filename_component(name ${source} NAME_WLE)
    set(object ${directory}/${name}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${POLLGAP_BPF_CLANG} -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_${POLLGAP_BPF_ARCH} -Wall -Werror
              -I${CMAKE_SOURCE_DIR} ${system_include} -MMD -MF ${object}.d -MT ${object}
              -c ${source_path} -o ${object}
      DEPENDS ${source_path}
      DEPFILE ${object}.d
      COMMENT "Compiling BPF ${source}"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()

  set(linked ${directory}/${target}.o)
  set(header ${directory}/${target}.skel.h)
  add_custom_command(
    OUTPUT ${linked}
    COMMAND ${POLLGAP_BPFTOOL} gen object ${linked} ${objects}
    DEPENDS ${objects}
    COMMENT "Linking BPF ${target}"
    VERBATIM)
  add_custom_command(
    OUTPUT ${header}
    COMMAND sh -c "'${POLLGAP_BPFTOOL}' gen skeleton '${linked}' name '${target}' > '${header}.tmp' && mv '${header}.tmp' '${header}'"
    DEPENDS ${linked}
    COMMENT "Generating ${target}.skel.h"
    VERBATIM)
  add_custom_target(${target}_skeleton DEPENDS ${header})

  add_library(${target} INTERFACE)
  add_dependencies(${target} ${target}_skeleton)
  target_include_directories(${target} SYSTEM INTERFACE ${directory})  # not our code: no warnings
  target_link_libraries(${target} INTERFACE PkgConfig::libbpf)
endfunction()
