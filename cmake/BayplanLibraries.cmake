# Third-party libraries behind the static libraries: used by the build and, installed beside
# BayplanConfig.cmake, by projects that link them. Archives are preferred, so that the command
# line stays one self-contained binary.
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(hwy REQUIRED)
find_package(Boost 1.71 REQUIRED)

# bayplan_find_archive(NAME library header): imported target Bayplan::NAME, the archive preferred.
function(bayplan_find_archive name library header)
  find_library(BAYPLAN_${name}_LIBRARY NAMES lib${library}.a ${library} REQUIRED)
  find_path(BAYPLAN_${name}_INCLUDE ${header} REQUIRED)
  mark_as_advanced(BAYPLAN_${name}_LIBRARY BAYPLAN_${name}_INCLUDE)
  add_library(Bayplan::${name} UNKNOWN IMPORTED)
  set_target_properties(Bayplan::${name} PROPERTIES
    IMPORTED_LOCATION "${BAYPLAN_${name}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${BAYPLAN_${name}_INCLUDE}")
endfunction()
bayplan_find_archive(xxhash xxhash xxhash.h)
bayplan_find_archive(uring uring liburing.h)

# zstd's archive is not position independent on Debian and only the executor's shared library
# needs it, so the shared one is taken.
find_library(BAYPLAN_ZSTD_LIBRARY zstd REQUIRED)
mark_as_advanced(BAYPLAN_ZSTD_LIBRARY)
add_library(Bayplan::zstd UNKNOWN IMPORTED)
set_target_properties(Bayplan::zstd PROPERTIES IMPORTED_LOCATION "${BAYPLAN_ZSTD_LIBRARY}")
