# Compiler flags shared by every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

option(TANDEM_FUZZ "Build the libFuzzer targets (clang only)" OFF)
set(TANDEM_SANITIZE "" CACHE STRING "Value of -fsanitize=, e.g. address,undefined")

find_program(CCACHE ccache)
if(CCACHE)
  # The base folder makes a second checkout hit the same cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
endif()

# -ffp-contract=off: a fused multiply-add happens only where the code asks for one, so that a
# reference and a fast path that promise equal bits keep the promise at every -O level.
add_compile_options(-Wall -Wextra -Werror -Wno-missing-field-initializers -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # libstdc++ 12 itself calls what it marks deprecated (stable_sort), and clang says so.
  add_compile_options(-Wno-deprecated-declarations)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -fno-omit-frame-pointer")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")

if(TANDEM_SANITIZE)
  add_compile_options(-fsanitize=${TANDEM_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TANDEM_SANITIZE})
endif()
if(TANDEM_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
