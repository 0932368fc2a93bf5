# CUDA language, sources and libraries of bayplan_executor; sets cuda_sources and cuda_libraries.
# torch 2.11 is a CUDA 13 build, and CMake 3.25 knows no CUDA dialect above 17.
set(CMAKE_CUDA_STANDARD 17)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80;90;100")
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin
               REQUIRED)
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

bayplan_glob(cuda_sources "kernels/cuda/*.cu" "executor/*.cu")

# NCCL is the one that the wheel loads: two copies in one process would not share communicators.
get_filename_component(site_packages "${BAYPLAN_TORCH_DIR}" DIRECTORY)
set(wheel_nccl "${site_packages}/nvidia/nccl")
find_path(BAYPLAN_NCCL_INCLUDE nccl.h PATHS "${wheel_nccl}/include" NO_DEFAULT_PATH REQUIRED)
find_library(BAYPLAN_NCCL_LIBRARY NAMES nccl libnccl.so.2 PATHS "${wheel_nccl}/lib"
             NO_DEFAULT_PATH REQUIRED)
mark_as_advanced(BAYPLAN_NCCL_INCLUDE BAYPLAN_NCCL_LIBRARY)
add_library(Bayplan::nccl UNKNOWN IMPORTED)
set_target_properties(Bayplan::nccl PROPERTIES
  IMPORTED_LOCATION "${BAYPLAN_NCCL_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${BAYPLAN_NCCL_INCLUDE}")
set(cuda_libraries CUDA::cudart Bayplan::nccl)

# The same rule as for C++: no fused multiply-add that the source does not name.
add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>)
set(cuda_rpath "${site_packages}/nvidia/cu13/lib" "${wheel_nccl}/lib")
