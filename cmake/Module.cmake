# tandem_module(<layer> [LINK <libs>...] [TEST_LINK <libs>...] [EXCLUDE <regex>])
#
# One folder is one static library `tandem_<layer>`. File names decide what a file is:
#   x.cc        part of the library
#   x_test.cc   part of the GoogleTest executable `<layer>_test`
#   x_bench.cc  part of the Google Benchmark executable `<layer>_bench`
#   x_fuzz.cc   its own libFuzzer executable `<layer>_x_fuzz` (preset fuzz only)
# Folders below the layer (src/ops/linear) belong to the same library, but for the paths that EXCLUDE
# matches.
find_package(Threads REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)

function(tandem_module layer)
  cmake_parse_arguments(ARG "" "EXCLUDE" "LINK;TEST_LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${ARG_EXCLUDE}")
  endif()
  set(tests ${sources})
  set(benches ${sources})
  set(fuzzers ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cc$")

  set(lib tandem_${layer})
  if(sources)
    add_library(${lib} STATIC ${sources})
    target_include_directories(${lib} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${lib} PUBLIC ${ARG_LINK} Threads::Threads)
  else()
    add_library(${lib} INTERFACE)
    target_include_directories(${lib} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${lib} INTERFACE ${ARG_LINK} Threads::Threads)
  endif()

  if(tests AND NOT TANDEM_FUZZ)
    add_executable(${layer}_test ${tests})
    target_link_libraries(${layer}_test PRIVATE ${lib} ${ARG_TEST_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
    add_test(NAME ${layer} COMMAND ${layer}_test WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  endif()
  if(benches AND NOT TANDEM_FUZZ)
    add_executable(${layer}_bench ${benches})
    target_link_libraries(${layer}_bench PRIVATE ${lib} benchmark::benchmark benchmark::benchmark_main)
    add_test(NAME ${layer}_bench_smoke
             COMMAND ${layer}_bench --benchmark_min_time=0.001
             WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${layer}_bench_smoke PROPERTIES LABELS bench)
  endif()
  if(TANDEM_FUZZ)
    foreach(source ${fuzzers})
      get_filename_component(name ${source} NAME_WE)
      add_executable(${layer}_${name} ${source})
      target_link_libraries(${layer}_${name} PRIVATE ${lib})
      target_link_options(${layer}_${name} PRIVATE -fsanitize=fuzzer)
    endforeach()
  endif()
endfunction()
