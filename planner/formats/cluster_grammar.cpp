#include "planner/formats/cluster_grammar.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

#include "planner/formats/cluster_json.h"
#include "planner/formats/quantity.h"

namespace bayplan {
namespace {

Error bad_cluster(std::string_view text, std::string_view problem) {
  return Error{
      "bad-cluster", fmt::format("'{}': {}", text.substr(0, 80), problem), "CLUSTER",
      "write a preset (8xh100-sxm-80gb), NODESxGPUSxPRESET@200Gbps, localhost:N or a cluster.json; "
      "'bayplan presets hardware' lists presets"};
}

/// Takes "<digits>x" from the front of `rest`; nullopt when there is none.
std::optional<std::string_view> take_count(std::string_view& rest) {
  std::size_t digits = 0;
  while (digits < rest.size() && std::isdigit(static_cast<unsigned char>(rest[digits])) != 0)
    ++digits;
  if (digits == 0 || digits + 1 >= rest.size() || rest[digits] != 'x') return std::nullopt;
  const std::string_view count = rest.substr(0, digits);
  rest.remove_prefix(digits + 1);
  return count;
}

Result<int> parse_count(std::string_view digits, std::string_view term) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::result_out_of_range || value > kMostDevices) {
    return Error{"out-of-range",
                 fmt::format("'{}': {} is more than {}", term.substr(0, 80), digits.substr(0, 24),
                             kMostDevices),
                 "CLUSTER", "write a smaller count"};
  }
  if (error != std::errc{} || end != digits.data() + digits.size() || digits.empty()) {
    return bad_cluster(term, fmt::format("'{}' is not a count", digits.substr(0, 24)));
  }
  if (value < 1) {
    return Error{"out-of-range", fmt::format("'{}': a count is zero", term.substr(0, 80)),
                 "CLUSTER", "write at least 1"};
  }
  return static_cast<int>(value);
}

Result<ClusterTerm> parse_term(std::string_view text) {
  ClusterTerm term;
  std::string_view rest = text;
  if (rest.empty()) return bad_cluster(text, "a term is empty");
  if (rest.ends_with(".json")) {
    term.kind = ClusterTerm::Kind::kFile;
    term.name = std::string(rest);
    return term;
  }
  const auto first = take_count(rest);
  const auto second = first ? take_count(rest) : std::nullopt;
  if (const std::size_t at = rest.find('@'); at != std::string_view::npos) {
    BAYPLAN_TRY(network,
                parse_rate(rest.substr(at + 1), fmt::format("CLUSTER '{}'", text.substr(0, 80))));
    term.network = network;
    rest = rest.substr(0, at);
  }
  if (rest == "localhost" || rest.starts_with("localhost:")) {
    if (second || term.network) {
      return bad_cluster(text, "localhost takes NODESxlocalhost:RANKS and no network");
    }
    term.kind = ClusterTerm::Kind::kLocalhost;
    term.name = "localhost";
    if (first) {
      BAYPLAN_TRY(nodes, parse_count(*first, text));
      term.nodes = nodes;
    }
    if (rest.size() > 9) {
      BAYPLAN_TRY(ranks, parse_count(rest.substr(10), text));
      term.devices = ranks;
    }
    return term;
  }
  if (const std::size_t colon = rest.find(':'); colon != std::string_view::npos) {
    return Error{
        "unsupported",
        fmt::format("'{}': several ranks on one device are not modelled", text.substr(0, 80)),
        "CLUSTER", fmt::format("write '{}' with one rank per device", rest.substr(0, colon))};
  }
  if (first) {
    BAYPLAN_TRY(count, parse_count(*first, text));
    term.devices = count;
  }
  if (second) {
    term.nodes = term.devices;
    BAYPLAN_TRY(devices, parse_count(*second, text));
    term.devices = devices;
  }
  if (rest.empty()) return bad_cluster(text, "the preset's name is missing");
  term.name = std::string(rest);
  if (std::int64_t{term.nodes} * term.devices > kMostDevices) {
    return Error{"out-of-range",
                 fmt::format("'{}': more than {} devices", text.substr(0, 80), kMostDevices),
                 "CLUSTER", "write a smaller cluster"};
  }
  return term;
}

}  // namespace

Result<std::vector<ClusterTerm>> parse_cluster_expression(std::string_view text) {
  std::vector<ClusterTerm> terms;
  if (text.empty()) return bad_cluster(text, "is empty");
  // A path may contain '+'; nothing else ends in .json.
  if (text.ends_with(".json")) {
    BAYPLAN_TRY(term, parse_term(text));
    terms.push_back(term);
    return terms;
  }
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t plus = std::min(text.find('+', begin), text.size());
    BAYPLAN_TRY(term, parse_term(text.substr(begin, plus - begin)));
    terms.push_back(term);
    begin = plus + 1;
  }
  for (const ClusterTerm& term : terms) {
    if (terms.size() > 1 && term.kind != ClusterTerm::Kind::kPreset) {
      return bad_cluster(text, "only presets can be joined with '+'");
    }
  }
  return terms;
}

}  // namespace bayplan
