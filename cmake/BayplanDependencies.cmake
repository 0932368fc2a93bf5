# Third-party libraries of the build. The executor's own (torch, MPI, CUDA) are in
# BayplanExecutor.cmake.
include(BayplanLibraries)
find_package(CLI11 REQUIRED)

# fmt: Debian has only a shared library, and header-only use costs four seconds a file, so the
# library part is compiled here once, from fmt's own headers.
add_library(bayplan_fmt STATIC "${PROJECT_SOURCE_DIR}/cmake/fmt_static.cpp")
set_target_properties(bayplan_fmt PROPERTIES EXPORT_NAME fmt)
add_library(Bayplan::fmt ALIAS bayplan_fmt)

# spdlog is used header-only, over the fmt above.
find_path(BAYPLAN_SPDLOG_INCLUDE spdlog/spdlog.h REQUIRED)
mark_as_advanced(BAYPLAN_SPDLOG_INCLUDE)
add_library(bayplan_spdlog INTERFACE)
target_link_libraries(bayplan_spdlog INTERFACE bayplan_fmt Threads::Threads)
target_compile_definitions(bayplan_spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
add_library(Bayplan::spdlog ALIAS bayplan_spdlog)
