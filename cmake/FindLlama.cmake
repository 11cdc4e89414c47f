# llama.cpp as tools/setup built it, shared by all build directories: llama::llama (with ggml), llama::common (templates, grammars, tool calls).
# Also the test models: TROUPE_TINY_GGUF (made by tests/support/make_tiny_gguf.py) and TROUPE_GEMMA_GGUF.

# One script decides where a build lives (version, flags, this CPU), so that setup and CMake can never disagree.
execute_process(
  COMMAND "${CMAKE_COMMAND}" -E env "TROUPE_CACHE_DIR=${TROUPE_CACHE_DIR}" "${PROJECT_SOURCE_DIR}/tools/lib/llama_dir"
  OUTPUT_VARIABLE Llama_DIR OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/tools/lib/llama.lock" "${PROJECT_SOURCE_DIR}/tools/lib/llama_dir")

if(NOT EXISTS "${Llama_DIR}/lib/libllama-common.so")
  message(FATAL_ERROR "llama.cpp is not in ${Llama_DIR}: run tools/setup, which builds it there (2 to 3 minutes on two cores).")
endif()

if(NOT TARGET llama::llama)
  foreach(part ggml-base ggml-cpu ggml llama)
    add_library(llama::${part} SHARED IMPORTED)
    set_target_properties(llama::${part} PROPERTIES
      IMPORTED_LOCATION "${Llama_DIR}/lib/lib${part}.so"
      INTERFACE_INCLUDE_DIRECTORIES "${Llama_DIR}/include")
  endforeach()
  set_property(TARGET llama::ggml APPEND PROPERTY INTERFACE_LINK_LIBRARIES llama::ggml-base llama::ggml-cpu)
  set_property(TARGET llama::llama APPEND PROPERTY INTERFACE_LINK_LIBRARIES llama::ggml)

  add_library(llama::common SHARED IMPORTED)
  set_target_properties(llama::common PROPERTIES
    IMPORTED_LOCATION "${Llama_DIR}/lib/libllama-common.so"
    INTERFACE_INCLUDE_DIRECTORIES "${Llama_DIR}/common;${Llama_DIR}/vendor"  # vendor: <nlohmann/json.hpp>, which its headers need
    INTERFACE_COMPILE_DEFINITIONS LLAMA_SUBPROCESS
    INTERFACE_LINK_LIBRARIES llama::llama)
endif()

set(TROUPE_TINY_GGUF "${TROUPE_CACHE_DIR}/models/tiny-llama-random.gguf")
set(TROUPE_GEMMA_GGUF "${TROUPE_CACHE_DIR}/models/gemma-3-270m-q4_k_m.gguf")
set(TROUPE_LLAMA_BATCHED_BENCH "${Llama_DIR}/bin/llama-batched-bench")
set(TROUPE_CHAT_TEMPLATES "${Llama_DIR}/templates")
