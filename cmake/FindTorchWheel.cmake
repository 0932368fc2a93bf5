# The torch wheel of a Python environment: imported target Bayplan::torch (CPU libraries only, or
# with BAYPLAN_CUDA the CUDA ones too), BAYPLAN_TORCH_DIR and TorchWheel_VERSION. Unlike torch's
# own package file it probes no CUDA compiler and links only what is named here.
if(BAYPLAN_PYTHON)
  set(torch_python "${BAYPLAN_PYTHON}")
else()
  set(torch_python "${PROJECT_SOURCE_DIR}/.venv/bin/python")
endif()

# Looks the package up without importing it: an import takes seconds.
execute_process(
  COMMAND "${torch_python}" -c "import importlib.util as u, importlib.metadata as m
print(u.find_spec('torch').submodule_search_locations[0])
print(m.version('torch').split('+')[0])"
  OUTPUT_VARIABLE torch_answer ERROR_VARIABLE torch_error RESULT_VARIABLE torch_result
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(torch_result EQUAL 0)
  string(REPLACE "\n" ";" torch_answer "${torch_answer}")
  list(GET torch_answer 0 BAYPLAN_TORCH_DIR)
  list(GET torch_answer 1 TorchWheel_VERSION)
  find_path(TorchWheel_INCLUDE ATen/ATen.h PATHS "${BAYPLAN_TORCH_DIR}/include" NO_DEFAULT_PATH
            NO_CACHE)
  find_library(TorchWheel_LIBRARY torch_cpu PATHS "${BAYPLAN_TORCH_DIR}/lib" NO_DEFAULT_PATH
               NO_CACHE)
else()
  message(STATUS "no torch for ${torch_python}: run tools/setup, or set BAYPLAN_PYTHON, or "
                 "configure with -DBAYPLAN_EXECUTOR=OFF")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchWheel
  REQUIRED_VARS TorchWheel_LIBRARY TorchWheel_INCLUDE VERSION_VAR TorchWheel_VERSION)

if(TorchWheel_FOUND AND NOT TARGET Bayplan::torch)
  add_library(Bayplan::torch INTERFACE IMPORTED)
  set_target_properties(Bayplan::torch PROPERTIES
    INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=1"
    INTERFACE_INCLUDE_DIRECTORIES
      "${BAYPLAN_TORCH_DIR}/include;${BAYPLAN_TORCH_DIR}/include/torch/csrc/api/include")
  set(torch_names torch_cpu c10)
  if(BAYPLAN_CUDA)
    list(APPEND torch_names c10_cuda)
    # Named by no symbol, but its load registers the CUDA operators.
    target_link_options(Bayplan::torch INTERFACE
      "LINKER:--push-state,--no-as-needed,${BAYPLAN_TORCH_DIR}/lib/libtorch_cuda.so,--pop-state")
  endif()
  foreach(name IN LISTS torch_names)
    add_library(Bayplan::${name} SHARED IMPORTED)
    set_target_properties(Bayplan::${name} PROPERTIES
      IMPORTED_LOCATION "${BAYPLAN_TORCH_DIR}/lib/lib${name}.so")
    target_link_libraries(Bayplan::torch INTERFACE Bayplan::${name})
  endforeach()
endif()
