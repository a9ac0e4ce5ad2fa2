// SPDX-License-Identifier: Apache-2.0
// Chapter 6. Saving and loading.
// The text around this program is docs/tutorial/06-saving.md.
#include <tandem/tandem.h>
using namespace tandem;

struct Net : nn::Module {
  nn::Linear fc1{4, 8}, fc2{8, 1};
  Net() { TD_REGISTER(fc1, fc2); }
  Tensor forward(Tensor x) { return fc2(tanh(fc1(x))); }
};

void train_on(Net& net, optim::Optimizer& opt, int steps) {
  for (int i = 0; i < steps; ++i) {
    Tensor x = randn({16, 4});
    opt.zero_grad();
    mse_loss(net(x), x.sum({1}, true)).backward();
    opt.step();
  }
}

bool equal(const StateDict& a, const StateDict& b) {
  for (auto& [name, value] : a)
    if (!(value == b.at(name)).all().item<bool>()) return false;
  return a.size() == b.size();
}

int main() {
  init();
  manual_seed(5);
  Net net;
  optim::AdamW opt(net.parameters());
  train_on(net, opt, 20);

  StateDict checkpoint;
  for (auto& [name, value] : net.state_dict()) checkpoint["model." + name] = value;
  for (auto& [name, value] : opt.state_dict()) checkpoint["optimizer." + name] = value;
  GeneratorState random = generator_state();
  save(checkpoint, "checkpoint.safetensors",
       {{"seed", std::to_string(random.seed)}, {"offset", std::to_string(random.offset)}});
  train_on(net, opt, 20);  // what the resumed run must repeat

  Metadata metadata;
  StateDict model, optimizer;
  for (auto& [name, value] : load("checkpoint.safetensors", &metadata)) {
    if (name.starts_with("model.")) model[name.substr(6)] = value;
    if (name.starts_with("optimizer.")) optimizer[name.substr(10)] = value;
  }
  Net resumed;
  optim::AdamW resumed_opt(resumed.parameters());
  resumed.load_state_dict(model);
  resumed_opt.load_state_dict(optimizer);
  set_generator_state({std::stoull(metadata[0].second), std::stoull(metadata[1].second)});
  train_on(resumed, resumed_opt, 20);
  bool same = equal(net.state_dict(), resumed.state_dict());
  print("the resumed run has {} bits\n", same ? "the same" : "OTHER");

  model.erase("fc2.bias");
  nn::LoadReport report = Net().load_state_dict(model, /*strict=*/false);
  print("missing: {}\n", report.missing.at(0));

  io::save_npz(net.state_dict(), "net.npz", {.compressed = true});
  StateDict from_numpy = io::load_npz("net.npz");
  print("{} arrays, fc1.weight is {}\n", from_numpy.size(), from_numpy.at("fc1.weight").shape());
  return same && equal(from_numpy, net.state_dict()) ? 0 : 1;
}
