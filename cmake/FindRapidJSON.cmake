# RapidJSON (headers): RapidJSON::RapidJSON. Debian's package has no target, so this makes one.

find_path(RapidJSON_INCLUDE_DIR rapidjson/writer.h)
mark_as_advanced(RapidJSON_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(RapidJSON REQUIRED_VARS RapidJSON_INCLUDE_DIR)

if(RapidJSON_FOUND AND NOT TARGET RapidJSON::RapidJSON)
  add_library(RapidJSON::RapidJSON INTERFACE IMPORTED)
  set_target_properties(RapidJSON::RapidJSON PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${RapidJSON_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS RAPIDJSON_HAS_STDSTRING=1)
endif()
