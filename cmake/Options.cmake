# Language level, build types, speed of the build, and `troupe::options`, which every own target links.

set(TROUPE_CUDA OFF CACHE STRING "Look for CUDA and NCCL: AUTO, ON or OFF")
set_property(CACHE TROUPE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TROUPE_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=: empty, address,undefined or thread")
option(TROUPE_WERROR "Warnings in own code are errors" ON)
option(TROUPE_PCH "Precompile other people's headers" ON)
option(TROUPE_FUZZ "Build the fuzz targets for libFuzzer (clang); otherwise they replay and mutate their corpus" OFF)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Debug CACHE STRING "Debug or RelWithDebInfo" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# CMAKE_POSITION_INDEPENDENT_CODE stays unset: it would compile libraries with -fPIC and programs with -fPIE, and neither could use the other's precompiled
# header. All own libraries are static, and the compiler's default fits both.
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_DISABLE_IN_SOURCE_BUILD ON)

# Line tables only: enough for backtraces, and a third of the object size, which is what links and caches are made of.
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")
if(TROUPE_SANITIZE MATCHES "address")
  # A quarter of the time it takes to build: reports name functions; for their lines, configure with -DTROUPE_SANITIZER_LINES=ON.
  option(TROUPE_SANITIZER_LINES "Line tables for AddressSanitizer's reports" OFF)
  if(NOT TROUPE_SANITIZER_LINES)
    set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g0")
  endif()
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")

find_program(TROUPE_CCACHE ccache)
if(TROUPE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/tools/lib/ccache_here")
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

find_program(TROUPE_MOLD mold)
find_program(TROUPE_LLD ld.lld)
if(TROUPE_MOLD)
  add_link_options(-fuse-ld=mold)
elseif(TROUPE_LLD)
  add_link_options(-fuse-ld=lld)
endif()

add_library(troupe_options INTERFACE)
add_library(troupe::options ALIAS troupe_options)
target_include_directories(troupe_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(troupe_options INTERFACE -Wall -Wextra -Wpedantic $<$<BOOL:${TROUPE_WERROR}>:-Werror>)
# Turns a message type that was not registered into a compile error rather than a run-time surprise.
target_compile_definitions(troupe_options INTERFACE CAF_ENABLE_TYPE_ID_CHECKS)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(troupe_options INTERFACE -fpch-preprocess)
  # With optimisation GCC 12 sees uninitialised, overlapping and endless memory inside its own std::string where there is none; clang and the sanitizers decide that.
  target_compile_options(troupe_options INTERFACE
    "$<$<CONFIG:RelWithDebInfo,Release>:-Wno-error=maybe-uninitialized;-Wno-error=restrict;-Wno-error=stringop-overread;-Wno-error=array-bounds>")
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(troupe_options INTERFACE "SHELL:-Xclang -fno-pch-timestamp")
endif()

if(TROUPE_FUZZ)
  # Coverage for libFuzzer in all own code; its main only in the fuzz targets.
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TROUPE_FUZZ needs clang: cmake --preset fuzz")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

if(TROUPE_SANITIZE)
  # Global, so that generated code and test mains are instrumented alike.
  add_compile_options(-fsanitize=${TROUPE_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TROUPE_SANITIZE})
  if(TROUPE_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)  # Boost.Asio has fences, which TSan doesn't see; it has its locks, too
  endif()
  if(TROUPE_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      add_compile_options(-fno-sanitize=pointer-overflow)  # RapidJSON's stack begins with null + size; AddressSanitizer sees what such a pointer touches
    endif()
  endif()
endif()

# Where tools/setup puts what is too big or too slow for each build directory to have its own: llama.cpp, models, virtual environments.
if(DEFINED ENV{TROUPE_CACHE_DIR})
  set(default_cache "$ENV{TROUPE_CACHE_DIR}")
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(default_cache "$ENV{XDG_CACHE_HOME}/troupe")
else()
  set(default_cache "$ENV{HOME}/.cache/troupe")
endif()
set(TROUPE_CACHE_DIR "${default_cache}" CACHE PATH "Folder that tools/setup fills")
