// SPDX-License-Identifier: Apache-2.0
// Batch normalisation in training, forward and backward: the values of each channel first, then the
// elements; so each direction reads its operands twice. Variances are of distances from a thread's
// first element, and threads are combined by Chan's formula, so large means cost no accuracy.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/backend/gpu/rows/channel_sums_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/graph/run/channels_last.h"
#include "tandem/ops/nn/norm.h"

namespace tandem::gpu {
namespace {

DType wide_type(DType x) { return x == DType::f64 ? DType::f64 : DType::f32; }
bool is_given(const KernelCall& c, int i) { return i < c.n_in && c.in[i].present(); }
bool wanted(const Array& a) { return a.data && a.numel > 0; }
size_t whole(size_t bytes) { return (bytes + 255) / 256 * 256; }

// [c] as an array of x's shape, without strides along other dimensions.
struct PerChannel {
  int64_t strides[kMaxRank] = {};
  Array array;

  PerChannel(const Array& v, const Array& x) : array(v) {
    strides[1] = 1;
    array.shape = x.shape;
    array.strides = strides;
    array.rank = x.rank;
    array.numel = x.numel;
    array.contiguous = false;
  }
  PerChannel(const PerChannel&) = delete;
  PerChannel& operator=(const PerChannel&) = delete;
};

// An array of channels in scratch memory.
Array sums_at(Address at, DType t) {
  Array a;
  a.data = reinterpret_cast<void*>(at);
  a.dtype = t;
  return a;
}

ChannelArgument in_channels(const char* name, const Array& a, int64_t channels) {
  const size_t bytes = static_cast<size_t>(channels) * size_of(a.dtype);
  return {{Parameter::in, word_of(a.dtype), name}, address_of(a.data), bytes, 0};
}
ChannelArgument out_channels(const char* name, const Array& a, int64_t channels) {
  ChannelArgument r = in_channels(name, a, channels);
  r.parameter.kind = Parameter::out;
  return r;
}
ChannelArgument number(const char* name, DType t, double v) {
  return {{Parameter::value, t, name}, 0, 0, v};
}

bool dense_or_absent(const KernelCall& c, int i) { return !is_given(c, i) || c.in[i].contiguous; }

// Channels-last results of channels-last operands.
template <int input>
bool like_input(const KernelCall& c, int output, Strides& s) {
  return output == 0 && !c.in[input].contiguous && detail::keep_channels_last<input>(c, output, s);
}

// ---- forward

ChannelProgram statistics_program() {
  return {.name = "batch_statistics",
          .states = 3,  // elements, their mean, squares of distances from it
          .locals = "s$",
          .start = "a0$ = 0; a1$ = 0; a2$ = 0; s$ = 0;",
          .take =
              "if (a0$ == 0) a1$ = v0;\n"
              "    const T d = v0 - a1$;\n"
              "    s$ = s$ + d; a2$ = a2$ + d * d; a0$ = a0$ + 1;",
          .done =
              "if (a0$ > 0) {\n"
              "      a2$ = a2$ - s$ * s$ / a0$; a1$ = a1$ + s$ / a0$;\n"
              "      if (a2$ < 0) a2$ = 0;\n    }",
          .combine =
              "if (b0 > 0) {\n"
              "      const T all = a0$ + b0, d = b1 - a1$, part = b0 / all;\n"
              "      a2$ = a2$ + b2 + d * d * (a0$ * part); a1$ = a1$ + d * part; a0$ = all;\n"
              "    }"};
}

bool train_supports(const KernelCall& c) {
  const Array& x = c.in[0];
  return has_types(c) && x.rank >= 2 && x.numel > 0 && dense_or_absent(c, 1) &&
         dense_or_absent(c, 2);
}

std::shared_ptr<const Plan> prepare_train(const KernelCall& c) {
  auto plan = std::make_shared<Plan>();
  const Array* x = &c.in[0];
  const DType wide = wide_type(x->dtype);
  const ChannelCut cut(&x, 1);
  plan->workspace = 3 * whole(static_cast<size_t>(cut.channels) * size_of(wide)) +
                    whole(cut.bytes_of_parts(statistics_program().states, wide));
  return plan;
}

void run_train(const KernelCall& c) {
  const Array* x = &c.in[0];
  const DType wide = wide_type(x->dtype);
  const ChannelCut cut(&x, 1);
  const size_t line = whole(static_cast<size_t>(cut.channels) * size_of(wide));
  // Results that nobody wants are written beside.
  Array values[3];
  for (int k = 0; k < 3; ++k) {
    const Array& out = c.out[1 + k];
    const bool has = k + 1 < c.n_out && out.data;
    values[k] = has ? out : sums_at(address_of(c.scratch) + static_cast<Address>(k) * line, wide);
  }
  ChannelProgram program = statistics_program();
  const char* root = wide == DType::f64 ? "td_sqrt_f64" : "td_sqrt_f32";
  program.finish =
      "mean[ch] = a1$; var[ch] = a2$ / count;\n"
      "    " +
      fmt::format("rstd[ch] = 1 / {}(a2$ / count + eps);", root);
  const std::vector<ChannelArgument> others = {out_channels("mean", values[0], cut.channels),
                                               out_channels("var", values[1], cut.channels),
                                               out_channels("rstd", values[2], cut.channels),
                                               number("eps", wide, c.get_attrs<NormAttrs>().eps)};
  run_channels(c, program, cut, &x, 1, wide, others, address_of(c.scratch) + 3 * line, 0);
  const PerChannel mean(values[0], *x), rstd(values[2], *x);
  const PerChannel w(c.in[is_given(c, 1) ? 1 : 0], *x), b(c.in[is_given(c, 2) ? 2 : 0], *x);
  std::vector<MappedArray> arrays = {
      {"y", &c.out[0], true}, {"x", x}, {"mean", &mean.array}, {"rstd", &rstd.array}};
  std::string body = "    y = (x - mean) * rstd;\n";
  if (is_given(c, 1)) {
    arrays.push_back({"w", &w.array});
    body += "    y = y * w;\n";
  }
  if (is_given(c, 2)) {
    arrays.push_back({"b", &b.array});
    body += "    y = y + b;\n";
  }
  run_mapped(c, "batch_norm", arrays, body, {}, uint64_t{is_given(c, 1)});
}

// ---- backward

ChannelProgram gradients_program() {
  return {.name = "batch_gradients",
          .states = 2,  // of g, of g times x as it was normalised
          .locals = "m$, q$",
          .start = "a0$ = 0; a1$ = 0; m$ = mean[ch]; q$ = rstd[ch];",
          .take = "a0$ = a0$ + v0; a1$ = a1$ + v0 * ((v1 - m$) * q$);",
          .done = "",
          .combine = "a0$ = a0$ + b0; a1$ = a1$ + b1;"};
}

bool backward_fits(const KernelCall& c) {
  const Array& x = c.in[1];
  const DType wide = wide_type(x.dtype);
  const bool saved =
      c.in[2].dtype == wide && c.in[3].dtype == wide && c.in[2].contiguous && c.in[3].contiguous;
  return has_types(c) && x.rank >= 2 && x.numel > 0 && saved && dense_or_absent(c, 4);
}

std::shared_ptr<const Plan> prepare_backward(const KernelCall& c) {
  auto plan = std::make_shared<Plan>();
  const Array* arrays[] = {&c.in[0], &c.in[1]};
  const DType wide = wide_type(c.in[1].dtype);
  const ChannelCut cut(arrays, 2);
  plan->workspace = 2 * whole(static_cast<size_t>(cut.channels) * size_of(wide)) +
                    whole(cut.bytes_of_parts(gradients_program().states, wide));
  return plan;
}

void run_backward(const KernelCall& c) {
  const Array *g = &c.in[0], *x = &c.in[1], *both[] = {g, x};
  const DType wide = wide_type(x->dtype);
  const ChannelCut cut(both, 2);
  const size_t line = whole(static_cast<size_t>(cut.channels) * size_of(wide));
  const Array sum_g = sums_at(address_of(c.scratch), wide);
  const Array sum_gx = sums_at(address_of(c.scratch) + line, wide);
  const int64_t n = cut.channels;
  std::vector<ChannelArgument> others = {
      in_channels("mean", c.in[2], n), in_channels("rstd", c.in[3], n),
      out_channels("sum_g", sum_g, n), out_channels("sum_gx", sum_gx, n)};
  ChannelProgram program = gradients_program();
  program.finish = "sum_g[ch] = a0$ / count; sum_gx[ch] = a1$ / count;";
  uint64_t variant = 0;
  for (int k = 1; k < 3; ++k) {
    const Array& out = c.out[k];
    variant = variant << 5 | (wanted(out) ? static_cast<uint64_t>(out.dtype) + 1 : 0);
    if (!wanted(out)) continue;
    others.push_back(out_channels(k == 1 ? "gw" : "gb", out, n));
    program.finish += fmt::format(" {}[ch] = {};", k == 1 ? "gw" : "gb",
                                  stored(k == 1 ? "a1$" : "a0$", out.dtype));
  }
  run_channels(c, program, cut, both, 2, wide, others, address_of(c.scratch) + 2 * line, variant);
  const PerChannel mean(c.in[2], *x), rstd(c.in[3], *x), w(c.in[is_given(c, 4) ? 4 : 2], *x);
  const PerChannel of_g(sum_g, *x), of_gx(sum_gx, *x);
  std::vector<MappedArray> arrays = {{"gx", &c.out[0], true},
                                     {"g", g},
                                     {"x", x},
                                     {"mean", &mean.array},
                                     {"rstd", &rstd.array},
                                     {"of_g", &of_g.array},
                                     {"of_gx", &of_gx.array}};
  std::string scale = "rstd";
  if (is_given(c, 4)) {
    arrays.push_back({"w", &w.array});
    scale = "(rstd * w)";
  }
  run_mapped(c, "batch_norm_backward", arrays,
             fmt::format("    gx = (g - of_g - (x - mean) * rstd * of_gx) * {};\n", scale), {}, 0);
}

}  // namespace

// Each takes every float for its operands and results: Kernel::converts.
void register_batch_norm(DeviceKind kind) {
  register_kernel(kind, op::batch_norm_train,
                  {train_supports, like_input<0>, prepare_train, run_train, true});
  register_kernel(kind, op::batch_norm_backward,
                  {backward_fits, like_input<1>, prepare_backward, run_backward, true});
}

}  // namespace tandem::gpu
