# The vocabulary of the folders' CMakeLists.txt.

set(TROUPE_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated")

# troupe_add_part(FOLDER): adds a part that exists.
function(troupe_add_part part)
  if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${part}/CMakeLists.txt")
    add_subdirectory(${part})
  endif()
endfunction()

# troupe_add_parts_below(): adds each subfolder that has a CMakeLists.txt. Targets may be named before they are defined, so order doesn't matter.
function(troupe_add_parts_below)
  file(GLOB lists CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt")
  list(SORT lists)
  foreach(list_file IN LISTS lists)
    get_filename_component(folder "${list_file}" DIRECTORY)
    add_subdirectory(${folder})
  endforeach()
endfunction()

# CAF's headers cost seconds in each source: compiled once here, reused by every target that says CAF. An object library, since a
# precompiled header needs a source to hang on.
if(TROUPE_PCH AND NOT TROUPE_CLANG_TIDY)
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/caf_pch.cpp" CONTENT "// Carries CAF's precompiled headers.\n")
  add_library(troupe_caf_pch OBJECT "${PROJECT_BINARY_DIR}/caf_pch.cpp")
  target_link_libraries(troupe_caf_pch PRIVATE troupe::options CAF::openssl)
  target_precompile_headers(troupe_caf_pch PRIVATE
    <algorithm> <chrono> <cstdint> <functional> <map> <memory> <optional> <span> <string> <string_view> <unordered_map> <utility> <variant> <vector>
    <caf/all.hpp> <caf/io/all.hpp>)
endif()

function(_troupe_configure target)
  cmake_parse_arguments(arg "CAF" "" "LIBS;PRIVATE_LIBS" ${ARGN})
  get_target_property(type ${target} TYPE)
  set(scope PUBLIC)
  if(type STREQUAL "INTERFACE_LIBRARY")
    set(scope INTERFACE)
  endif()
  target_link_libraries(${target} ${scope} troupe::options ${arg_LIBS})
  if(arg_PRIVATE_LIBS)
    target_link_libraries(${target} PRIVATE ${arg_PRIVATE_LIBS})
  endif()
  if(arg_CAF)
    target_link_libraries(${target} ${scope} CAF::io CAF::openssl)
    if(TARGET troupe_caf_pch AND NOT scope STREQUAL "INTERFACE")
      target_precompile_headers(${target} REUSE_FROM troupe_caf_pch)
    endif()
  endif()
  if(TROUPE_CLANG_TIDY AND NOT scope STREQUAL "INTERFACE")
    find_program(TROUPE_CLANG_TIDY_PROGRAM NAMES clang-tidy-14 clang-tidy REQUIRED)
    set_target_properties(${target} PROPERTIES CXX_CLANG_TIDY "${TROUPE_CLANG_TIDY_PROGRAM};--quiet;--warnings-as-errors=*")
  endif()
endfunction()

# troupe_library(NAME [CAF] [SOURCES] source... [LIBS public...] [PRIVATE_LIBS private...]): the target troupe_NAME, alias troupe::NAME; static, or
# header-only without sources. CAF: links CAF and reuses its precompiled headers.
function(troupe_library name)
  cmake_parse_arguments(arg "CAF" "" "SOURCES;LIBS;PRIVATE_LIBS" ${ARGN})
  set(sources ${arg_SOURCES} ${arg_UNPARSED_ARGUMENTS})
  set(target troupe_${name})
  set(caf "")
  if(arg_CAF)
    set(caf CAF)
  endif()
  if(sources)
    add_library(${target} STATIC ${sources})
  else()
    add_library(${target} INTERFACE)
  endif()
  add_library(troupe::${name} ALIAS ${target})
  _troupe_configure(${target} ${caf} LIBS ${arg_LIBS} PRIVATE_LIBS ${arg_PRIVATE_LIBS})
endfunction()

# troupe_executable(NAME [CAF] [SOURCES] source... [LIBS lib...]): a program in build/<preset>/bin.
function(troupe_executable name)
  cmake_parse_arguments(arg "CAF" "" "SOURCES;LIBS" ${ARGN})
  set(caf "")
  if(arg_CAF)
    set(caf CAF)
  endif()
  add_executable(${name} ${arg_SOURCES} ${arg_UNPARSED_ARGUMENTS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  _troupe_configure(${name} ${caf} LIBS ${arg_LIBS})
endfunction()

# _troupe_ctest(NAME DEFAULT_LABEL DEFAULT_SECONDS [LABELS label...] [TIMEOUT seconds] COMMAND program arg...): the entry in ctest. The test finds the program and the
# models by the environment: TROUPE_BIN, TROUPE_TINY_GGUF, TROUPE_GEMMA_GGUF, TROUPE_SOURCE_DIR.
function(_troupe_ctest name default_label default_seconds)
  cmake_parse_arguments(arg "" "TIMEOUT" "LABELS;COMMAND" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS ${default_label})
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT ${default_seconds})
    if(TROUPE_SANITIZE STREQUAL "thread")
      math(EXPR arg_TIMEOUT "4 * ${arg_TIMEOUT}")  # so much slower
    endif()
  endif()
  set(environment "TROUPE_SOURCE_DIR=${PROJECT_SOURCE_DIR}" "TROUPE_TINY_GGUF=${TROUPE_TINY_GGUF}" "TROUPE_GEMMA_GGUF=${TROUPE_GEMMA_GGUF}")
  if(TARGET troupe)
    list(APPEND environment "TROUPE_BIN=$<TARGET_FILE:troupe>")
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${environment}")
endfunction()

# troupe_test(NAME [CAF] [LABELS label...] [TIMEOUT seconds] SOURCES source... [LIBS lib...]): one Catch2 program, one ctest entry. LABELS: unit, actor,
# sim, cluster, chaos, conformance, fuzz, gpu; unit when missing; model in addition, where the real model takes its time. The models' paths are TROUPE_TINY_GGUF and TROUPE_GEMMA_GGUF.
function(troupe_test name)
  cmake_parse_arguments(arg "CAF" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  set(caf "")
  if(arg_CAF)
    set(caf CAF)
  endif()
  add_executable(${name} ${arg_SOURCES} ${arg_UNPARSED_ARGUMENTS} $<TARGET_OBJECTS:troupe_catch_main>)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin/tests")
  target_compile_definitions(${name} PRIVATE TROUPE_TINY_GGUF="${TROUPE_TINY_GGUF}" TROUPE_GEMMA_GGUF="${TROUPE_GEMMA_GGUF}")
  _troupe_configure(${name} ${caf} LIBS ${arg_LIBS} Catch2::Catch2)
  _troupe_ctest(${name} unit 120 LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT} COMMAND ${name})
endfunction()

# troupe_python_test(NAME SCRIPT file [LABELS label...] [TIMEOUT seconds] [ARGS arg...] [OPENAI]): a script on Python's standard library (unittest), or with
# the OpenAI client where it says OPENAI. Real processes contend for cores and ports, so these run one at a time.
function(troupe_python_test name)
  cmake_parse_arguments(arg "OPENAI" "SCRIPT;TIMEOUT" "LABELS;ARGS" ${ARGN})
  set(python /usr/bin/python3)
  if(arg_OPENAI)
    set(python "${TROUPE_CACHE_DIR}/venv/conformance/bin/python")  # by tools/setup --check
  endif()
  get_filename_component(script "${arg_SCRIPT}" ABSOLUTE)
  _troupe_ctest(${name} cluster 300 LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT} COMMAND ${python} -B -u ${script} ${arg_ARGS})
  set_tests_properties(${name} PROPERTIES RUN_SERIAL ON SKIP_RETURN_CODE 77)
endfunction()

# troupe_fuzz(NAME [CAF] SOURCES source... [LIBS lib...] [CORPUS folder]): a target that defines LLVMFuzzerTestOneInput. Preset `fuzz` links libFuzzer;
# others a main that replays the corpus and mutates it for TROUPE_FUZZ_SECONDS as the ctest entry NAME, label fuzz.
set(TROUPE_FUZZ_SECONDS 10 CACHE STRING "How long each fuzz target runs under ctest")
function(troupe_fuzz name)
  cmake_parse_arguments(arg "CAF" "CORPUS" "SOURCES;LIBS" ${ARGN})
  set(caf "")
  if(arg_CAF)
    set(caf CAF)
  endif()
  add_executable(${name} ${arg_SOURCES} ${arg_UNPARSED_ARGUMENTS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin/fuzz")
  _troupe_configure(${name} ${caf} LIBS ${arg_LIBS})
  set(corpus "")
  if(arg_CORPUS)
    get_filename_component(corpus "${arg_CORPUS}" ABSOLUTE)
  endif()
  if(TROUPE_FUZZ)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    # New inputs go to the build folder, not among the sources.
    file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/found-${name}")
    add_test(NAME ${name} COMMAND ${name} -max_total_time=${TROUPE_FUZZ_SECONDS} -timeout=10 -print_final_stats=1
      "${CMAKE_CURRENT_BINARY_DIR}/found-${name}" ${corpus})
  else()
    target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/support/fuzz_main.cpp")
    add_test(NAME ${name} COMMAND ${name} --seconds ${TROUPE_FUZZ_SECONDS} ${corpus})
  endif()
  math(EXPR timeout "${TROUPE_FUZZ_SECONDS} + 60")
  set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT ${timeout})
endfunction()

# troupe_capnp(NAME file.capnp... [LIBS lib...]): a library of generated code. `messages/job.capnp` is included as "messages/job.capnp.h".
function(troupe_capnp name)
  cmake_parse_arguments(arg "" "" "LIBS" ${ARGN})
  set(CAPNPC_SRC_PREFIX "${PROJECT_SOURCE_DIR}")
  set(CAPNPC_OUTPUT_DIR "${TROUPE_GENERATED_DIR}")
  file(MAKE_DIRECTORY "${TROUPE_GENERATED_DIR}")
  capnp_generate_cpp(sources headers ${arg_UNPARSED_ARGUMENTS})
  add_library(troupe_${name} STATIC ${sources} ${headers})
  add_library(troupe::${name} ALIAS troupe_${name})
  target_compile_options(troupe_${name} PRIVATE -w)
  target_include_directories(troupe_${name} SYSTEM PUBLIC "${TROUPE_GENERATED_DIR}")
  target_link_libraries(troupe_${name} PUBLIC CapnProto::capnp ${arg_LIBS})
  # Users must not compile before the headers exist, whatever the generator.
  add_custom_target(troupe_${name}_headers DEPENDS ${headers})
  add_dependencies(troupe_${name} troupe_${name}_headers)
endfunction()
