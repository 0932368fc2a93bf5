# Language, flags, output folders and the functions by which every target is declared.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
# The baseline is plain x86-64; wider vectors are chosen at run time by Highway.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

# A contraction (a*b+c as one fused instruction) would make results depend on the instruction set
# that was picked at run time, so it is off in the whole project. -ffast-math is never used.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

if(BAYPLAN_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${BAYPLAN_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${BAYPLAN_SANITIZE})
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")  # -O2 takes minutes for single large headers
  if(BAYPLAN_SANITIZE MATCHES "undefined")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined>)
  endif()
endif()

# ccache: the sloppiness is what it needs for precompiled headers; base_dir and no hash_dir let
# several build folders of one checkout share results.
find_program(BAYPLAN_CCACHE ccache)
if(BAYPLAN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${BAYPLAN_CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${BAYPLAN_CCACHE}")
endif()
add_link_options(-Wl,--as-needed)
find_program(BAYPLAN_MOLD mold)
if(BAYPLAN_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

set(BAYPLAN_WARNINGS
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Wswitch-enum)
if(BAYPLAN_WERROR)
  list(APPEND BAYPLAN_WARNINGS -Werror)
endif()

# bayplan_glob(OUT pattern... [EXCLUDE regex...]): source files below the repository root. Patterns
# are recursive from their folder; a regex is matched against "/path/from/root".
function(bayplan_glob out)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "EXCLUDE")
  list(TRANSFORM ARG_UNPARSED_ARGUMENTS PREPEND "${PROJECT_SOURCE_DIR}/")
  file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}"
       ${ARG_UNPARSED_ARGUMENTS})
  set(kept "")
  foreach(file IN LISTS found)
    set(keep TRUE)
    foreach(regex IN LISTS ARG_EXCLUDE)
      if("/${file}" MATCHES "${regex}")
        set(keep FALSE)
      endif()
    endforeach()
    if(keep)
      list(APPEND kept "${PROJECT_SOURCE_DIR}/${file}")
    endif()
  endforeach()
  list(SORT kept)
  set(${out} "${kept}" PARENT_SCOPE)
endfunction()

# Warnings, the include root and the version, for every target of the project.
function(bayplan_target_defaults target)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${BAYPLAN_WARNINGS}>")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(${target} PRIVATE "BAYPLAN_VERSION=\"${PROJECT_VERSION}\"")
endfunction()

# bayplan_add_library(NAME source...): a static library whose includes start at the repository
# root; without sources an interface library, so that others may name it already.
function(bayplan_add_library name)
  set(scope PUBLIC)
  if(ARGN)
    add_library(${name} STATIC ${ARGN})
    bayplan_target_defaults(${name})
  else()
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${name} ${scope}
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/bayplan>")
  string(REPLACE "bayplan_" "" short "${name}")
  set_target_properties(${name} PROPERTIES EXPORT_NAME ${short})
  add_library(Bayplan::${short} ALIAS ${name})
endfunction()

# bayplan_unity(TARGET n): with BAYPLAN_UNITY, compiles n source files at a time. A header-heavy
# target builds in less than half the time; a name in an anonymous namespace must then be unique
# within the target's namespace, not only within its file.
function(bayplan_unity target batch)
  get_target_property(type ${target} TYPE)
  if(BAYPLAN_UNITY AND NOT type STREQUAL "INTERFACE_LIBRARY")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  endif()
endfunction()
