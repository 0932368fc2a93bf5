#include "executor/checkpoint/save_state.h"

#include <memory>

#include "executor/checkpoint/gather_state.h"
#include "executor/checkpoint/safetensors.h"
#include "executor/checkpoint/state_hash.h"

namespace bayplan::exec {
namespace {

constexpr std::string_view kWeights = "weights/";

bool is_weight(const LogicalTensor& tensor) { return tensor.name.starts_with(kWeights); }

LogicalTensor plain(LogicalTensor tensor) {
  tensor.name = tensor.name.substr(kWeights.size());
  return tensor;
}

std::string hexadecimal(std::uint64_t value) {
  std::string out(16, '0');
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[out.size() - 1 - i] = "0123456789abcdef"[(value >> (4 * i)) & 15];
  }
  return out;
}

}  // namespace

std::string save_state(const Program& program, const std::array<std::byte*, kTierCount>& arenas,
                       Communicator& communicator, const SaveRequest& request) {
  StateHash hash;
  std::unique_ptr<SafetensorsWriter> dump;
  std::unique_ptr<SafetensorsWriter> model;
  if (communicator.rank() == 0) {
    const std::vector<LogicalTensor> all = state_tensors(program);
    const std::string step = std::to_string(request.step);
    const std::string fingerprint = hexadecimal(program.fingerprint);
    if (!request.dump_path.empty()) {
      dump = std::make_unique<SafetensorsWriter>(
          request.dump_path, all,
          std::map<std::string, std::string>{{"fingerprint", fingerprint}, {"step", step}});
    }
    if (!request.model_path.empty()) {
      std::vector<LogicalTensor> weights;
      for (const LogicalTensor& tensor : all) {
        if (is_weight(tensor)) weights.push_back(plain(tensor));
      }
      model = std::make_unique<SafetensorsWriter>(
          request.model_path, weights,
          std::map<std::string, std::string>{
              {"fingerprint", fingerprint}, {"format", "pt"}, {"step", step}});
    }
  }
  gather_state(program, arenas, communicator, request.step, [&](const LogicalTensor& tensor) {
    if (request.hash) hash.add(tensor);
    if (dump) dump->add(tensor);
    if (model && is_weight(tensor)) model->add(plain(tensor));
  });
  if (dump) dump->finish();
  if (model) model->finish();
  return request.hash && communicator.rank() == 0 ? hash.hex() : "";
}

}  // namespace bayplan::exec
