// SPDX-License-Identifier: Apache-2.0
// `tandem convert IN OUT`: weights from one format to another, checked by reading them back.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstring>

#include "cli/commands_internal.h"
#include "tandem/interop/weights.h"
#include "tandem/tandem.h"
#include "tandem/tensor/strided.h"

namespace tandem::cli {
namespace {

std::vector<char> bytes_of(const Tensor& t) {
  std::vector<char> out(static_cast<size_t>(t.numel()) * size_of(t.dtype()));
  if (!out.empty()) detail::copy_row_major(*t.impl(), out.data(), t.dtype());
  return out;
}

/// The dtype of a name such as "float16" or "f16"; throws Value.
DType dtype_named(const std::string& name) {
#define X(short_name, type, text) \
  if (name == #short_name || name == text) return DType::short_name;
  TD_FOR_EACH_DTYPE(X)
#undef X
  TD_FAIL(Value, "there is no dtype '{}'\nTry float32, float16 or bfloat16.", name);
}

}  // namespace

void add_convert(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand("convert",
                                      "Weights from one format to another\n\n"
                                      "  tandem convert resnet50.pth resnet50.safetensors\n"
                                      "  tandem convert folder model.npz --dtype float16");
  struct Options {
    std::string in, out, dtype;
  };
  auto o = std::make_shared<Options>();
  verb->add_option("in", o->in, ".safetensors, index.json, .pth, .pt, .bin, .npz, or a folder")
      ->required();
  verb->add_option("out", o->out, ".safetensors, .pth, .pt, .bin or .npz")->required();
  verb->add_option("--dtype", o->dtype, "Cast floating tensors to this");
  verb->callback([&code, o] {
    init();
    StateDict tensors = interop::load_weights(o->in);
    if (!o->dtype.empty()) {
      const DType to = dtype_named(o->dtype);
      StateDict cast;
      for (const auto& [name, t] : tensors) cast[name] = is_floating(t.dtype()) ? t.to(to) : t;
      tensors = std::move(cast);
    }
    interop::save_weights(tensors, o->out);
    const StateDict back = interop::load_weights(o->out);
    TD_CHECK(back.size() == tensors.size(), Io, "'{}' holds {} tensors, {} were written", o->out,
             back.size(), tensors.size());
    for (const auto& [name, t] : tensors)
      TD_CHECK(back.contains(name) && back.at(name).dtype() == t.dtype() &&
                   back.at(name).shape() == t.shape() && bytes_of(back.at(name)) == bytes_of(t),
               Io, "'{}': tensor '{}' does not read back", o->out, name);
    fmt::print("{}: {} tensors, read back and equal\n", o->out, tensors.size());
    code = 0;
  });
}

}  // namespace tandem::cli
