// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/compiled_forward.h"

#include "tandem/compile/compile.h"
#include "tandem/compile/run/executable.h"
#include "tandem/onnx/runner.h"

namespace tandem::recipe {

struct CompiledForward::State {
  using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
  explicit State(const LoadedModel& m)
      : runner(m.runner),
        program(compile(Function(m.run), {.same_bits = m.opened != nullptr})) {}  // a run: as eval
  std::shared_ptr<onnx::OnnxRunner> runner;
  Compiled<Function> program;
};

CompiledForward::CompiledForward(const LoadedModel& model)
    : state_(std::make_shared<State>(model)) {}

std::vector<Tensor> CompiledForward::operator()(const std::vector<Tensor>& inputs) {
  return state_->runner ? (*state_->runner)(inputs) : state_->program(inputs);
}
const char* CompiledForward::way() const {
  return to_string(state_->runner ? state_->runner->way() : onnx::OnnxWay::whole);
}
std::string CompiledForward::note() const {
  return state_->runner ? state_->runner->note() : std::string();
}
Ref<Executable> CompiledForward::executable() const {
  return state_->runner ? state_->runner->executable() : state_->program.executable();
}

}  // namespace tandem::recipe
