# The C++ Actor Framework, which Debian ships without a CMake package: CAF::core, CAF::io, CAF::openssl.

find_path(CAF_INCLUDE_DIR caf/all.hpp HINTS ${CAF_ROOT} PATH_SUFFIXES include)
mark_as_advanced(CAF_INCLUDE_DIR)
if(CAF_INCLUDE_DIR)
  # `#define CAF_VERSION 1706` is 0.17.6.
  file(STRINGS "${CAF_INCLUDE_DIR}/caf/config.hpp" line REGEX "^#define CAF_VERSION [0-9]+")
  string(REGEX REPLACE ".* ([0-9]+)$" "\\1" number "${line}")
  math(EXPR major "${number} / 10000")
  math(EXPR minor "${number} / 100 % 100")
  math(EXPR patch "${number} % 100")
  set(CAF_VERSION "${major}.${minor}.${patch}")
endif()

foreach(part core io openssl)
  find_library(CAF_${part}_LIBRARY caf_${part} HINTS ${CAF_ROOT} PATH_SUFFIXES lib)
  mark_as_advanced(CAF_${part}_LIBRARY)
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  CAF
  REQUIRED_VARS CAF_core_LIBRARY CAF_io_LIBRARY CAF_openssl_LIBRARY CAF_INCLUDE_DIR
  VERSION_VAR CAF_VERSION)

if(CAF_FOUND AND NOT TARGET CAF::core)
  foreach(part core io openssl)
    add_library(CAF::${part} UNKNOWN IMPORTED)
    set_target_properties(CAF::${part} PROPERTIES
      IMPORTED_LOCATION "${CAF_${part}_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}")  # an imported target's headers are SYSTEM
  endforeach()
  set_property(TARGET CAF::core APPEND PROPERTY INTERFACE_LINK_LIBRARIES Threads::Threads)
  set_property(TARGET CAF::io APPEND PROPERTY INTERFACE_LINK_LIBRARIES CAF::core)
  set_property(TARGET CAF::openssl APPEND PROPERTY INTERFACE_LINK_LIBRARIES CAF::io OpenSSL::SSL)
endif()
