#include "planner/formats/calibration_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace bayplan {
namespace {

using nlohmann::ordered_json;

constexpr const char* kCalibrationSchema = "bayplan.calibration/1";
constexpr std::int64_t kMostCores = 4096;
constexpr std::int64_t kLargestSize = std::int64_t{1} << 40;
constexpr double kLargestRate = 1e18;
constexpr std::array<const char*, 3> kPhaseNames = {"forward", "backward_input", "backward_weight"};

auto text() {
  return [](const JsonCursor& c) { return c.string(); };
}
auto duration(Zero zero) {
  return [zero](const JsonCursor& c) { return c.duration(zero); };
}
auto factor(double least, double most) {
  return [=](const JsonCursor& c) { return c.number(least, most); };
}
auto byte_rate(Zero zero = Zero::kRefused) {
  return [zero](const JsonCursor& c) -> Result<double> {
    BAYPLAN_TRY(rate, c.rate(zero));
    return rate.value;
  };
}
auto element_rate() { return factor(1.0, kLargestRate); }

template <class T, class Read>
auto list_of(Read read) {
  return [read](const JsonCursor& at) -> Result<std::vector<T>> {
    BAYPLAN_TRY(elements, at.elements());
    std::vector<T> out;
    for (const JsonCursor& element : elements) {
      BAYPLAN_TRY(value, read(element));
      out.push_back(value);
    }
    return out;
  };
}

Result<DType> read_dtype(const JsonCursor& at) {
  BAYPLAN_TRY(name, at.one_of({"fp64", "fp32", "bf16"}));
  return *parse_dtype(name);
}

Result<OperatorKind> read_kind(const JsonCursor& at) {
  std::vector<std::string> names;
  for (int k = 0; k < kOperatorKindCount; ++k) {
    names.emplace_back(operator_spec(static_cast<OperatorKind>(k)).name);
  }
  BAYPLAN_TRY(name, at.one_of(names));
  for (std::size_t k = 0; k < names.size(); ++k) {
    if (names[k] == name) return static_cast<OperatorKind>(k);
  }
  return at.error("unknown-value", "not an operator: " + name);
}

Result<Phase> read_phase(const JsonCursor& at) {
  BAYPLAN_TRY(name, at.one_of({kPhaseNames[0], kPhaseNames[1], kPhaseNames[2]}));
  std::size_t p = 0;
  while (kPhaseNames[p] != name) ++p;
  return static_cast<Phase>(p);
}

Result<std::vector<std::int64_t>> read_axis(const JsonCursor& at) {
  auto values =
      list_of<std::int64_t>([](const JsonCursor& c) { return c.integer(1, kLargestSize); })(at);
  if (!values) return values.error();
  if (values->empty())
    return at.error("empty-list", "an axis without sizes", "write at least one size");
  for (std::size_t i = 1; i < values->size(); ++i) {
    if ((*values)[i] <= (*values)[i - 1]) {
      return at.error("not-ascending",
                      fmt::format("size {} after {}", (*values)[i], (*values)[i - 1]),
                      "sizes of an axis ascend");
    }
  }
  return values;
}

Result<RateGrid> read_grid(const JsonCursor& at) {
  RateGrid grid;
  std::vector<std::vector<std::int64_t>> axes;
  std::string unit;
  ObjectReader r(at);
  r.required("operator", grid.kind, read_kind);
  r.required("phase", grid.phase, read_phase);
  r.required("dtype", grid.dtype, read_dtype);
  r.required("unit", unit, [](const JsonCursor& c) { return c.one_of({"FLOP/s", "B/s"}); });
  r.required("axes", axes, list_of<std::vector<std::int64_t>>(read_axis));
  r.required("busy", grid.busy, list_of<double>(factor(1.0, kLargestRate)));
  r.required("alone", grid.alone, list_of<double>(factor(1.0, kLargestRate)));
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  if (axes.size() != grid.axes.size()) {
    return at.at("axes").error("wrong-count", fmt::format("{} axes", axes.size()), "write three");
  }
  std::size_t points = 1;
  for (std::size_t d = 0; d < grid.axes.size(); ++d) {
    grid.axes[d] = axes[d];
    points *= axes[d].size();
  }
  for (const auto& [name, rates] :
       {std::pair{"busy", &grid.busy}, std::pair{"alone", &grid.alone}}) {
    if (rates->size() == points) continue;
    return at.at(name).error("wrong-count",
                             fmt::format("{} rates for a grid of {} points", rates->size(), points),
                             "measure again with `bayplan calibrate`");
  }
  return grid;
}

Result<StreamRates> read_streams(const JsonCursor& at) {
  StreamRates s;
  ObjectReader r(at);
  r.required("dtype", s.dtype, read_dtype);
  r.required("update_elements_per_second", s.update_elements, element_rate());
  r.required("norm_elements_per_second", s.norm_elements, element_rate());
  r.required("sum", s.sum_bytes, byte_rate());
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  return s;
}

Result<ThreadEfficiency> read_threads(const JsonCursor& at) {
  ThreadEfficiency t;
  ObjectReader r(at);
  r.required("operator", t.kind, read_kind);
  r.required("threads", t.threads, [](const JsonCursor& c) { return c.integer(2, kMostCores); });
  r.required("short_call", t.short_call, factor(1e-6, 10.0));
  r.required("long_call", t.long_call, factor(1e-6, 10.0));
  r.required("short_time", t.short_time, duration(Zero::kRefused));
  r.required("long_time", t.long_time, duration(Zero::kRefused));
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  return t;
}

ordered_json write_grid(const RateGrid& grid) {
  return {{"operator", operator_spec(grid.kind).name},
          {"phase", kPhaseNames[static_cast<std::size_t>(grid.phase)]},
          {"dtype", dtype_name(grid.dtype)},
          {"unit", grid.kind == OperatorKind::kLinear || grid.kind == OperatorKind::kLmHeadLoss ||
                           grid.kind == OperatorKind::kAttention
                       ? "FLOP/s"
                       : "B/s"},
          {"axes", grid.axes},
          {"busy", grid.busy},
          {"alone", grid.alone}};
}

}  // namespace

Result<Calibration> read_calibration(const JsonCursor& at) {
  Calibration c;
  std::string schema;
  ObjectReader r(at);
  r.required("schema", schema, [](const JsonCursor& s) { return s.one_of({kCalibrationSchema}); });
  r.required("machine", c.machine, text());
  r.required("libraries", c.libraries, text());
  r.required("cores", c.cores, [](const JsonCursor& n) { return n.integer(1, kMostCores); });
  r.required("copy", c.copy_bytes, byte_rate());
  r.required("fill", c.fill_bytes, byte_rate());
  r.required("wake_idle", c.wake_idle, duration(Zero::kAllowed));
  r.required("wake_busy", c.wake_busy, duration(Zero::kAllowed));
  r.required("instruction", c.instruction, duration(Zero::kAllowed));
  r.optional("mpi_latency", c.mpi_latency, duration(Zero::kAllowed));
  r.optional("mpi_bandwidth", c.mpi_bandwidth,
             [](const JsonCursor& v) { return v.rate(Zero::kAllowed); });
  r.required("oversubscription", c.oversubscription, factor(0.1, 1e3));
  r.required("memory_slowdown", c.memory_slowdown, factor(0.1, 1e6));
  r.required("crowding", c.crowding, list_of<double>(factor(0.0, 1.0)));
  r.required("threads", c.threads, list_of<ThreadEfficiency>(read_threads));
  r.required("streams", c.streams, list_of<StreamRates>(read_streams));
  r.required("operators", c.operators, list_of<RateGrid>(read_grid));
  BAYPLAN_RETURN_IF_ERROR(r.finish());
  if (c.crowding.size() != static_cast<std::size_t>(c.cores)) {
    return at.at("crowding")
        .error("wrong-count", fmt::format("{} values for {} cores", c.crowding.size(), c.cores),
               "measure again with `bayplan calibrate`");
  }
  if (c.streams.empty()) {
    return at.at("streams").error("empty-list", "no rates of optimizer and sums",
                                  "measure again with `bayplan calibrate`");
  }
  return c;
}

Result<Calibration> read_calibration_file(const std::string& path) {
  BAYPLAN_TRY(document, read_json_file(path));
  return read_calibration(JsonCursor(document));
}

std::string calibration_text(const Calibration& c) {
  ordered_json out = {{"schema", kCalibrationSchema},
                      {"machine", c.machine},
                      {"libraries", c.libraries},
                      {"cores", c.cores},
                      {"copy", exact_rate(BytesPerSecond(c.copy_bytes))},
                      {"fill", exact_rate(BytesPerSecond(c.fill_bytes))},
                      {"wake_idle", exact_duration(c.wake_idle)},
                      {"wake_busy", exact_duration(c.wake_busy)},
                      {"instruction", exact_duration(c.instruction)},
                      {"mpi_latency", exact_duration(c.mpi_latency)},
                      {"mpi_bandwidth", exact_rate(c.mpi_bandwidth)},
                      {"oversubscription", c.oversubscription},
                      {"memory_slowdown", c.memory_slowdown},
                      {"crowding", c.crowding},
                      {"threads", ordered_json::array()},
                      {"streams", ordered_json::array()},
                      {"operators", ordered_json::array()}};
  for (const ThreadEfficiency& t : c.threads) {
    out["threads"].push_back({{"operator", operator_spec(t.kind).name},
                              {"threads", t.threads},
                              {"short_call", t.short_call},
                              {"long_call", t.long_call},
                              {"short_time", exact_duration(t.short_time)},
                              {"long_time", exact_duration(t.long_time)}});
  }
  for (const StreamRates& s : c.streams) {
    out["streams"].push_back({{"dtype", dtype_name(s.dtype)},
                              {"update_elements_per_second", s.update_elements},
                              {"norm_elements_per_second", s.norm_elements},
                              {"sum", exact_rate(BytesPerSecond(s.sum_bytes))}});
  }
  for (const RateGrid& g : c.operators) out["operators"].push_back(write_grid(g));
  return out.dump(1) + "\n";
}

}  // namespace bayplan
