# UCX: UCX::ucp, UCX::uct, UCX::ucs. A module of our own rather than UCX's CMake package, so that UCX_ROOT may name an unpacked build with CUDA.

find_path(UCX_INCLUDE_DIR ucp/api/ucp.h HINTS ${UCX_ROOT} PATH_SUFFIXES include)
mark_as_advanced(UCX_INCLUDE_DIR)
if(UCX_INCLUDE_DIR)
  file(STRINGS "${UCX_INCLUDE_DIR}/ucp/api/ucp_version.h" lines REGEX "^#define UCP_API_(MAJOR|MINOR) +[0-9]+")
  string(REGEX REPLACE ".*UCP_API_MAJOR +([0-9]+).*" "\\1" major "${lines}")
  string(REGEX REPLACE ".*UCP_API_MINOR +([0-9]+).*" "\\1" minor "${lines}")
  set(UCX_VERSION "${major}.${minor}")
endif()

foreach(part ucp uct ucs)
  find_library(UCX_${part}_LIBRARY ${part} HINTS ${UCX_ROOT} PATH_SUFFIXES lib)
  mark_as_advanced(UCX_${part}_LIBRARY)
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  UCX
  REQUIRED_VARS UCX_ucp_LIBRARY UCX_uct_LIBRARY UCX_ucs_LIBRARY UCX_INCLUDE_DIR
  VERSION_VAR UCX_VERSION)

if(UCX_FOUND AND NOT TARGET UCX::ucp)
  foreach(part ucp uct ucs)
    add_library(UCX::${part} UNKNOWN IMPORTED)
    set_target_properties(UCX::${part} PROPERTIES
      IMPORTED_LOCATION "${UCX_${part}_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${UCX_INCLUDE_DIR}")
  endforeach()
  set_property(TARGET UCX::uct APPEND PROPERTY INTERFACE_LINK_LIBRARIES UCX::ucs)
  set_property(TARGET UCX::ucp APPEND PROPERTY INTERFACE_LINK_LIBRARIES UCX::uct UCX::ucs)
endif()
