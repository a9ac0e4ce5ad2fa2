// SPDX-License-Identifier: Apache-2.0
// Chapter 4. Text.
// The text around this program is docs/tutorial/04-text.md.
#include <tandem/tandem.h>
using namespace tandem;

const std::string kText =
    "Tyger Tyger, burning bright,\nIn the forests of the night;\n"
    "What immortal hand or eye,\nCould frame thy fearful symmetry?\n\n"
    "In what distant deeps or skies,\nBurnt the fire of thine eyes?\n"
    "On what wings dare he aspire?\nWhat the hand, dare seize the fire?\n";
constexpr int64_t kContext = 32, kWidth = 64, kHeads = 4;

struct Block : nn::Module {
  nn::LayerNorm norm1{{kWidth}}, norm2{{kWidth}};
  nn::Linear qkv{kWidth, 3 * kWidth}, out{kWidth, kWidth}, up{kWidth, 4 * kWidth},
      down{4 * kWidth, kWidth};
  Block() { TD_REGISTER(norm1, norm2, qkv, out, up, down); }

  Tensor forward(Tensor x) {  // [n, t, width]
    auto n = x.size(0), t = x.size(1);
    Tensor heads = qkv(norm1(x)).reshape({n, t, 3, kHeads, -1}).permute({2, 0, 3, 1, 4});
    Tensor seen = scaled_dot_product_attention(heads[0], heads[1], heads[2], /*mask=*/{},
                                               /*dropout_p=*/0, /*is_causal=*/true);
    x = x + out(seen.transpose(1, 2).reshape({n, t, kWidth}));
    return x + down(gelu(up(norm2(x))));
  }
};

struct Model : nn::Module {
  nn::Embedding characters, places{kContext, kWidth};
  std::vector<Block> blocks{2};
  nn::LayerNorm norm{{kWidth}};
  nn::Linear head;
  explicit Model(int64_t symbols) : characters(symbols, kWidth), head(kWidth, symbols) {
    TD_REGISTER(characters, places, blocks, norm, head);
  }
  Tensor forward(Tensor x) {  // [n, t] -> [n, t, symbols]
    x = characters(x) + places(arange(x.size(1)));
    for (Block& block : blocks) x = block(x);
    return head(norm(x));
  }
};

int main() {
  init();
  manual_seed(3);
  std::string symbols = kText;
  std::sort(symbols.begin(), symbols.end());
  symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
  std::vector<int64_t> ids;
  for (char c : kText) ids.push_back(static_cast<int64_t>(symbols.find(c)));
  Tensor text = tensor(ids);
  auto characters = static_cast<int64_t>(symbols.size());

  Model model(characters);
  optim::AdamW opt(model.parameters(), {.lr = 3e-3});
  float last = 0;
  for (int step = 0; step < 200; ++step) {
    Tensor starts = randint(text.size(0) - kContext, {16, 1});
    Tensor places = starts + arange(kContext);
    Tensor x = text[places], y = text[places + 1];
    Tensor loss = cross_entropy(model(x).reshape({-1, characters}), y.flatten());
    opt.zero_grad();
    loss.backward();
    optim::clip_grad_norm_(model.parameters(), 1.0);
    opt.step();
    last = loss.item<float>();
    if (step % 50 == 49) print("step {} loss {:.3f}\n", step + 1, last);
  }

  NoGradGuard no_grad;
  std::string written = "Tyger";
  while (written.size() < 200) {
    std::vector<int64_t> context;
    for (char c : written.substr(written.size() - std::min<size_t>(written.size(), kContext)))
      context.push_back(static_cast<int64_t>(symbols.find(c)));
    Tensor scores = model(tensor(context).unsqueeze(0)).select(1, -1);
    Tensor next = multinomial(softmax(scores / 0.5, -1), 1);
    written += symbols[static_cast<size_t>(next.item<int64_t>())];
  }
  print("{}\n", written);
  return last < 0.5f ? 0 : 1;
}
