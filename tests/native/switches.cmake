# SPDX-License-Identifier: Apache-2.0
# The agent keeps up with tasks that do nothing but switch, on all cores: none of their records is lost
# but those of the moments in which the machine itself does not let the agent run, and these are told.
# So are those that are lost because the agent was stopped.
foreach(kind pipe yield)
  add_test(NAME switches.${kind}
    COMMAND ${POLLGAP_PYTHON} ${CMAKE_SOURCE_DIR}/tests/bench/switches --build ${CMAKE_BINARY_DIR}
      --seconds 5 --pairs 1 --kind ${kind} --most-lost 0.05)
endforeach()
add_test(NAME switches.lost
  COMMAND ${POLLGAP_PYTHON} ${CMAKE_SOURCE_DIR}/tests/bench/switches --build ${CMAKE_BINARY_DIR}
    --seconds 5 --pairs 1 --stop-agent 4)
set_tests_properties(switches.pipe switches.yield switches.lost PROPERTIES LABELS native RUN_SERIAL ON TIMEOUT 300)
