# libbayplan_executor.so: what needs torch, MPI and (with BAYPLAN_CUDA) CUDA and NCCL. The command
# line loads it when a subcommand asks for it.
find_package(TorchWheel REQUIRED)
set(MPI_CXX_SKIP_MPICXX TRUE)
find_package(MPI REQUIRED COMPONENTS CXX)

set(excluded "")
if(NOT BAYPLAN_CUDA)
  set(excluded EXCLUDE "/[^/]*cuda[^/]*$")
endif()
bayplan_glob(executor_sources
  "executor/ops/*.cpp" "executor/launch/*.cpp" "executor/*torch*.cpp" "executor/comm/mpi*.cpp"
  "executor/*cuda*.cpp" ${excluded})
list(REMOVE_DUPLICATES executor_sources)
if(NOT executor_sources)
  message(STATUS "bayplan_executor: no sources yet, skipped")
  return()
endif()

if(BAYPLAN_CUDA)
  include(BayplanCuda)
endif()

add_library(bayplan_executor SHARED ${executor_sources} ${cuda_sources})
add_library(Bayplan::executor ALIAS bayplan_executor)
bayplan_target_defaults(bayplan_executor)
target_include_directories(bayplan_executor INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")

# The whole of planner, kernels and executor core goes in: users of the shared library (tests,
# benchmarks) then take every symbol from it, and there is one copy of each static variable.
foreach(part IN ITEMS bayplan_planner bayplan_kernels bayplan_executor_core)
  target_link_libraries(bayplan_executor PRIVATE ${part})
  get_target_property(type ${part} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    set_property(TARGET bayplan_executor PROPERTY
      LINK_LIBRARY_OVERRIDE_${part} WHOLE_ARCHIVE)
  endif()
endforeach()
target_link_libraries(bayplan_executor
  PUBLIC Bayplan::torch MPI::MPI_CXX Threads::Threads
  PRIVATE bayplan_fmt nlohmann_json::nlohmann_json Bayplan::uring Bayplan::xxhash Bayplan::zstd
          ${CMAKE_DL_LIBS})
target_precompile_headers(bayplan_executor PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:<ATen/ATen.h$<ANGLE-R>>")
set_target_properties(bayplan_executor PROPERTIES
  EXPORT_NAME executor
  BUILD_RPATH "${BAYPLAN_TORCH_DIR}/lib;${cuda_rpath}"
  INSTALL_RPATH "$ORIGIN;${BAYPLAN_TORCH_DIR}/lib;${cuda_rpath}")
if(BAYPLAN_CUDA)
  target_compile_definitions(bayplan_executor PUBLIC BAYPLAN_CUDA=1)
  target_link_libraries(bayplan_executor PRIVATE ${cuda_libraries})
endif()
