# A relocatable tree: bin/ (the command line, with libbayplan_executor.so beside it), lib/,
# include/bayplan/ and a CMake package (find_package(Bayplan), targets Bayplan::planner, …).
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Bayplan")

if(TARGET bayplan)
  install(TARGETS bayplan RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
if(TARGET bayplan_executor)
  install(TARGETS bayplan_executor LIBRARY DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(TARGETS bayplan_fmt bayplan_planner bayplan_kernels bayplan_simulator bayplan_executor_core
  EXPORT BayplanTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT BayplanTargets NAMESPACE Bayplan:: DESTINATION "${package_dir}")

foreach(folder IN ITEMS planner models simulator executor kernels)
  if(IS_DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}")
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}"
      DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/bayplan" FILES_MATCHING PATTERN "*.h")
  endif()
endforeach()

configure_package_config_file(cmake/BayplanConfig.cmake.in
  "${PROJECT_BINARY_DIR}/generated/BayplanConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/generated/BayplanConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/generated/BayplanConfig.cmake"
  "${PROJECT_BINARY_DIR}/generated/BayplanConfigVersion.cmake"
  cmake/BayplanLibraries.cmake
  DESTINATION "${package_dir}")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/bayplan")
