// SPDX-License-Identifier: Apache-2.0
// The program of the README: one epoch of MNIST. Usage: mnist FOLDER_OF_IDX_FILES
#include <tandem/tandem.h>
using namespace tandem;
struct Net : nn::Module {
  nn::Conv2d conv1{1, 32, 3}, conv2{32, 64, 3};
  nn::Linear fc1{9216, 128}, fc2{128, 10};
  Net() { TD_REGISTER(conv1, conv2, fc1, fc2); }              // parameter names conv1.weight, fc2.bias ... as PyTorch's
  Tensor forward(Tensor x) {
    x = relu(conv1(x));
    x = max_pool2d(relu(conv2(x)), 2);
    return fc2(relu(fc1(x.flatten(1))));
  }
};
int main(int, char** argv) {
  init(); manual_seed(0);
  Net net;
  optim::AdamW opt(net.parameters(), {.lr = 1e-3});
  data::MNIST train(argv[1], {.train = true});
  for (auto [x, y] : data::DataLoader(train, {.batch_size = 64, .shuffle = true})) {
    opt.zero_grad();
    Tensor loss = cross_entropy(net.forward(x), y);
    loss.backward();
    opt.step();
    print("loss {}\n", loss.item<float>());
  }
  save(net.state_dict(), "net.safetensors");                  // and back: net.load_state_dict(load("net.safetensors"))
}
