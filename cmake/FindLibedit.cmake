# libedit: Libedit::edit.

find_path(Libedit_INCLUDE_DIR editline/readline.h)
find_library(Libedit_LIBRARY edit)
mark_as_advanced(Libedit_INCLUDE_DIR Libedit_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libedit REQUIRED_VARS Libedit_LIBRARY Libedit_INCLUDE_DIR)

if(Libedit_FOUND AND NOT TARGET Libedit::edit)
  add_library(Libedit::edit UNKNOWN IMPORTED)
  set_target_properties(Libedit::edit PROPERTIES
    IMPORTED_LOCATION "${Libedit_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Libedit_INCLUDE_DIR}")
endif()
