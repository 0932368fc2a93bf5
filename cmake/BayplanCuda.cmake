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
if(NOT TARGET bayplan_nccl)
  message(FATAL_ERROR "BAYPLAN_CUDA=ON needs nccl.h in the CUDA toolkit's include folder")
endif()

bayplan_glob(cuda_sources "kernels/cuda/*.cu" "executor/*.cu")

# NCCL is loaded by name when it is asked for (executor/comm/nccl_api.cpp), through a path to the one
# that the wheel brings: two copies in one process would not share communicators.
get_filename_component(site_packages "${BAYPLAN_TORCH_DIR}" DIRECTORY)
find_file(BAYPLAN_NCCL_LIBRARY libnccl.so.2 PATHS "${site_packages}/nvidia/nccl/lib"
          NO_DEFAULT_PATH REQUIRED)
mark_as_advanced(BAYPLAN_NCCL_LIBRARY)
get_filename_component(nccl_folder "${BAYPLAN_NCCL_LIBRARY}" DIRECTORY)
set(cuda_libraries CUDA::cudart)
set(cuda_rpath "${site_packages}/nvidia/cu13/lib" "${nccl_folder}")

# The same rule as for C++: no fused multiply-add that the source does not name.
add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>)
