# What Troupe builds on. Versions are those of Debian 12, which tools/setup installs.

find_package(Threads REQUIRED)
find_package(CAF 0.17.6 REQUIRED)       # CAF::core, CAF::io, CAF::openssl (own module)
find_package(CapnProto REQUIRED)        # CapnProto::capnp
find_package(UCX 1.13 REQUIRED)         # UCX::ucp, UCX::uct, UCX::ucs (own module)
find_package(OpenSSL 3 REQUIRED)        # OpenSSL::SSL
find_package(Boost 1.81 REQUIRED)       # Boost::headers: Beast and Asio
find_package(simdjson REQUIRED)         # simdjson::simdjson: JSON in
find_package(fmt REQUIRED)              # fmt::fmt
find_package(spdlog REQUIRED)           # spdlog::spdlog
find_package(tomlplusplus REQUIRED)     # tomlplusplus::tomlplusplus
find_package(CLI11 REQUIRED)            # CLI11::CLI11
find_package(prometheus-cpp REQUIRED)   # prometheus-cpp::core, prometheus-cpp::pull
find_package(Catch2 2 REQUIRED)         # Catch2::Catch2
find_package(xxHash REQUIRED)           # xxHash::xxhash (own module)
find_package(RapidJSON REQUIRED MODULE) # RapidJSON::RapidJSON (own module): JSON out
find_package(Libedit REQUIRED)          # Libedit::edit (own module): lines of an interactive console
find_package(SQLite3 3.40 REQUIRED)     # SQLite::SQLite3: state of the control host
find_package(Llama REQUIRED)            # llama::llama, llama::common (own module)

if(NOT TROUPE_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit)
  find_package(NCCL)                    # NCCL::nccl (own module)
  if(TROUPE_CUDA STREQUAL "ON" AND NOT (CUDAToolkit_FOUND AND NCCL_FOUND))
    message(FATAL_ERROR "TROUPE_CUDA=ON, but CUDA or NCCL was not found (CUDAToolkit: ${CUDAToolkit_FOUND}, NCCL: ${NCCL_FOUND}).")
  endif()
endif()
