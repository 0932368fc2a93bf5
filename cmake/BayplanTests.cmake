# Test programs, script tests, fuzz targets and the benchmark program.
enable_testing()
find_package(GTest REQUIRED)
find_package(rapidcheck REQUIRED)
include(GoogleTest)

set(test_python "${PROJECT_SOURCE_DIR}/.venv/bin/python")
if(BAYPLAN_PYTHON)
  set(test_python "${BAYPLAN_PYTHON}")
elseif(NOT EXISTS "${test_python}")
  find_program(test_python_found python3 REQUIRED)
  set(test_python "${test_python_found}")
endif()

# Open MPI refuses root and more ranks than cores unless told otherwise.
set(mpi_environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_rmaps_base_oversubscribe=1)

function(bayplan_test_program name)
  add_executable(${name} ${ARGN})
  bayplan_target_defaults(${name})
  # GoogleTest's macros and deliberate odd values make this one too noisy in tests.
  target_compile_options(${name} PRIVATE -Wno-conversion)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")  # assertions gain nothing from -O2 but compile time
    target_compile_options(${name} PRIVATE -O1)
  endif()
  target_compile_definitions(${name} PRIVATE
    "BAYPLAN_TEST_DATA_DIR=\"${PROJECT_SOURCE_DIR}/tests/data\"")
endfunction()

set(nccl_tests_excluded "")
if(NOT TARGET bayplan_nccl)
  set(nccl_tests_excluded EXCLUDE "/nccl[^/]*$")
endif()

# ---- without torch: one ctest entry per test, listed when ctest starts --------------------------
bayplan_glob(test_sources "tests/unit/*.cpp" "tests/golden/*.cpp" "tests/conformance/*.cpp"
  "tests/property/*.cpp" ${nccl_tests_excluded})
bayplan_glob(fuzz_sources "tests/fuzz/*.cpp")
if(test_sources)
  bayplan_test_program(bayplan_tests ${test_sources})
  target_link_libraries(bayplan_tests PRIVATE
    bayplan_simulator bayplan_executor_core bayplan_planner bayplan_kernels
    nlohmann_json::nlohmann_json Boost::headers Bayplan::xxhash
    GTest::gmock GTest::gtest_main rapidcheck)
  if(TARGET bayplan_nccl)
    target_link_libraries(bayplan_tests PRIVATE bayplan_nccl)
    # It defines NCCL's opaque types, which only a file of its own may do with private contents.
    set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/unit/executor/nccl_stand_in.cpp"
      PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  bayplan_unity(bayplan_tests 6)
  gtest_discover_tests(bayplan_tests DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    PROPERTIES LABELS bayplan_tests TIMEOUT 300)
endif()

# ---- with torch: loading the wheel takes 0.4 s, so the tests run in a few processes -------------
if(TARGET bayplan_executor)
  set(executor_test_globs "tests/executor/*.cpp" "tests/faults/*.cpp")
  bayplan_glob(executor_test_sources ${executor_test_globs})
  if(executor_test_sources)
    bayplan_test_program(bayplan_executor_tests ${executor_test_sources})
    # The shared library comes first: it has all of planner, kernels and executor core.
    target_link_libraries(bayplan_executor_tests PRIVATE
      bayplan_executor bayplan_simulator bayplan_fmt nlohmann_json::nlohmann_json
      GTest::gmock GTest::gtest_main rapidcheck)
    target_precompile_headers(bayplan_executor_tests PRIVATE <ATen/ATen.h> <gtest/gtest.h>)
    bayplan_unity(bayplan_executor_tests 4)
    set_target_properties(bayplan_executor_tests PROPERTIES
      BUILD_RPATH "$ORIGIN;${BAYPLAN_TORCH_DIR}/lib")
    set(shards 4)
    math(EXPR last "${shards} - 1")
    foreach(shard RANGE ${last})
      # tools/test reads the counts of a shard from its XML file.
      add_test(NAME bayplan_executor_tests.shard${shard}
        COMMAND bayplan_executor_tests
          "--gtest_output=xml:${PROJECT_BINARY_DIR}/test_results/executor_shard${shard}.xml"
        WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
      set_tests_properties(bayplan_executor_tests.shard${shard} PROPERTIES
        LABELS bayplan_executor_tests TIMEOUT 900
        ENVIRONMENT
          "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${shard};${mpi_environment}")
    endforeach()
  endif()

  find_package(benchmark REQUIRED)
  bayplan_glob(bench_sources "tests/bench/*.cpp")
  if(bench_sources)
    add_executable(bayplan_bench ${bench_sources})
    bayplan_target_defaults(bayplan_bench)
    target_link_libraries(bayplan_bench PRIVATE
      bayplan_executor bayplan_simulator bayplan_fmt benchmark::benchmark
      benchmark::benchmark_main)
    set_target_properties(bayplan_bench PROPERTIES
      BUILD_RPATH "$ORIGIN;${BAYPLAN_TORCH_DIR}/lib")
  endif()
endif()

# ---- GPU: a program of its own, run by tests/gpu/gpu_test.sh --------------------------------------
set(gpu_tests "")
if(BAYPLAN_CUDA)
  bayplan_glob(gpu_test_sources "tests/gpu/*.cpp")
  bayplan_test_program(bayplan_gpu_tests ${gpu_test_sources})
  target_link_libraries(bayplan_gpu_tests PRIVATE bayplan_nccl CUDA::cudart GTest::gtest)
  # The libraries of NCCL and of the CUDA runtime are found by name, through this path.
  set_target_properties(bayplan_gpu_tests PROPERTIES BUILD_RPATH "${cuda_rpath}")
  set(gpu_tests "$<TARGET_FILE:bayplan_gpu_tests>")
endif()

# ---- scripts: one ctest entry per file; exit code 77 means skipped ------------------------------
# A name with a leading underscore is a module that tests import, not a test.
if(TARGET bayplan)
  set(script_globs "tests/cli/*.py" "tests/cli/*.sh" "tests/gpu/*.sh")
  if(TARGET bayplan_executor)
    list(APPEND script_globs "tests/distributed/*.py" "tests/distributed/*.sh")
  endif()
  bayplan_glob(script_tests ${script_globs} EXCLUDE "/_[^/]*$" "/__pycache__/")
  foreach(script IN LISTS script_tests)
    file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}/tests" "${script}")
    if(script MATCHES "\\.py$")
      add_test(NAME "${name}" COMMAND "${test_python}" "${script}"
               WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    else()
      add_test(NAME "${name}" COMMAND bash "${script}" WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    endif()
    set_tests_properties("${name}" PROPERTIES
      SKIP_RETURN_CODE 77 TIMEOUT 900 LABELS scripts
      ENVIRONMENT
        "BAYPLAN_BIN=$<TARGET_FILE:bayplan>;BAYPLAN_GPU_TESTS=${gpu_tests};BAYPLAN_PYTHON=${test_python};PYTHONDONTWRITEBYTECODE=1;${mpi_environment}")
    if(name MATCHES "^distributed/")
      set_tests_properties("${name}" PROPERTIES PROCESSORS 2)
    endif()
  endforeach()
endif()

# ---- fuzz: one program per tests/fuzz/*.cpp -----------------------------------------------------
# With clang and BAYPLAN_FUZZ each is a libFuzzer program; always, the same entry point is linked
# with a main that replays tests/fuzz/corpus/NAME, as a plain test.
set(replay_main "${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cpp")
if(EXISTS "${replay_main}")
  add_library(bayplan_replay_main OBJECT "${replay_main}")
  bayplan_target_defaults(bayplan_replay_main)
endif()
foreach(source IN LISTS fuzz_sources)
  get_filename_component(name "${source}" NAME_WE)
  if(name STREQUAL "replay_main")
    continue()
  endif()
  set(fuzz_links bayplan_simulator bayplan_executor_core bayplan_planner
                 nlohmann_json::nlohmann_json)
  if(BAYPLAN_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      message(FATAL_ERROR "BAYPLAN_FUZZ needs clang")
    endif()
    add_executable(fuzz_${name} "${source}")
    bayplan_target_defaults(fuzz_${name})
    target_compile_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(fuzz_${name} PRIVATE ${fuzz_links})
  endif()
  if(TARGET bayplan_replay_main)
    add_executable(replay_${name} "${source}")
    bayplan_target_defaults(replay_${name})
    target_link_libraries(replay_${name} PRIVATE bayplan_replay_main ${fuzz_links})
    add_test(NAME fuzz_corpus.${name}
      COMMAND replay_${name} "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}"
      WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(fuzz_corpus.${name} PROPERTIES LABELS bayplan_tests TIMEOUT 300)
  endif()
endforeach()
