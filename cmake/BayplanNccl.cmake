# bayplan_nccl: the communicator over NCCL. It needs the headers of NCCL and of the CUDA runtime, no
# GPU and no library, so it is built and tested with a stand-in wherever those headers are found.
find_package(CUDAToolkit QUIET)
find_path(BAYPLAN_NCCL_HEADERS nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} NO_CMAKE_FIND_ROOT_PATH)
mark_as_advanced(BAYPLAN_NCCL_HEADERS)
if(NOT CUDAToolkit_FOUND OR NOT BAYPLAN_NCCL_HEADERS)
  message(STATUS "bayplan_nccl: no CUDA toolkit with nccl.h, skipped")
  return()
endif()

bayplan_glob(nccl_sources "executor/comm/nccl*.cpp")
bayplan_add_library(bayplan_nccl ${nccl_sources})
# System headers: their warnings are not ours.
target_include_directories(bayplan_nccl SYSTEM PUBLIC
  "$<BUILD_INTERFACE:${BAYPLAN_NCCL_HEADERS}>" "$<BUILD_INTERFACE:${CUDAToolkit_INCLUDE_DIRS}>")
target_link_libraries(bayplan_nccl PUBLIC bayplan_executor_core PRIVATE ${CMAKE_DL_LIBS})
