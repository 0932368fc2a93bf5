#include "planner/formats/offload_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace bayplan {
namespace {

constexpr std::array<std::string_view, 5> kKinds = {"optimizer", "master", "params", "gradients",
                                                    "activations"};

}  // namespace

Result<Offload> parse_offload(std::string_view text, const std::string& where) {
  Offload offload;
  if (text == "none") return offload;
  for (std::string_view rest = text;;) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::string_view tierless = item.substr(0, item.find('@'));
    const std::string_view kind = tierless.substr(0, tierless.find('='));
    if (std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end()) {
      return Error{"usage",
                   fmt::format("'{}' is nothing that can be offloaded", item.substr(0, 60)), where,
                   fmt::format("write KIND items with commas; kinds: {}", fmt::join(kKinds, ", "))};
    }
    const auto unsupported = [&](std::string_view what) {
      return Error{
          "unsupported",
          fmt::format("{} in '{}' is neither modelled nor executed yet", what, item.substr(0, 60)),
          where, "write optimizer, activations or both, without ratio and tier"};
    };
    if (tierless.size() != item.size()) {
      if (item.substr(tierless.size()) != "@nvme" && item.substr(tierless.size()) != "@host") {
        return Error{"usage", fmt::format("'{}' names no tier", item.substr(0, 60)), where,
                     "write @nvme behind the kind, or nothing for host memory"};
      }
      if (item.substr(tierless.size()) == "@nvme") return unsupported("the NVMe tier");
    }
    if (kind.size() != tierless.size()) {
      const std::string_view digits = tierless.substr(kind.size() + 1);
      double ratio = 0.0;
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), ratio);
      if (error != std::errc() || end != digits.data() + digits.size() || !(ratio > 0.0) ||
          ratio > 1.0) {
        return Error{"usage", fmt::format("'{}' has no ratio in (0, 1]", item.substr(0, 60)), where,
                     "write a ratio as in optimizer=0.5"};
      }
      if (ratio != 1.0) return unsupported("a ratio below 1");
    }
    if (kind != "optimizer" && kind != "activations") return unsupported(kind);
    bool& chosen = kind == "optimizer" ? offload.optimizer : offload.activations;
    if (chosen) {
      return Error{"usage", fmt::format("'{}' is there twice", kind), where, "name it once"};
    }
    chosen = true;
    if (item.size() == rest.size()) return offload;
    rest.remove_prefix(item.size() + 1);
  }
}

std::string offload_text(const Offload& offload) {
  std::string text;
  if (offload.optimizer) text += "optimizer";
  if (offload.activations) text += text.empty() ? "activations" : ",activations";
  return text.empty() ? "none" : text;
}

}  // namespace bayplan
