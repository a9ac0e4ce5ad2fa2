// SPDX-License-Identifier: Apache-2.0
// PyTorch's function names -> Tandem's functions, called with a golden case's inputs and
// attributes.
#include "tandem/ops/ops.h"
#include "tandem/ops/view/bits.h"
#include "tests/golden/golden_helper.h"

namespace tandem::golden {
namespace {

void add_pointwise(FnTable& t) {
#define PW1(name, ...) CASE(name, name(g.t(0)));
#define PW1G PW1
#define PW1N(name, types, n, value, ...) CASE(name, name(g.t(0), g.d(#n, value)));
#define PW1NG PW1N
#define PW1NNG(name, types, n, n_value, m, m_value, ...) \
  CASE(name, name(g.t(0), g.d(#n, n_value), g.d(#m, m_value)));
#define PW2(name, ...) CASE(name, name(g.at(0), g.at(1)));
#define PW2G PW2
#define ROW(...)
#define ROWG(...)
#include "tandem/ops/pointwise/pointwise.def"
#undef PW1
#undef PW1G
#undef PW1N
#undef PW1NG
#undef PW1NNG
#undef PW2
#undef PW2G
#undef ROW
#undef ROWG
  CASE(isclose, isclose(g.at(0), g.at(1), g.d("rtol"), g.d("atol")));
  CASE(polygamma, polygamma(g.i("n"), g.t(0)));
  CASE(mvlgamma, mvlgamma(g.t(0), g.i("p")));
  CASE(betaln, betaln(g.t(0), g.t(1)));
  t["add"] = [](const Case& g) -> Ts {
    if (g.has("alpha")) return {add(g.at(0), g.at(1), g.number("alpha"))};
    return {g.at(0) + g.at(1)};
  };
  t["sub"] = [](const Case& g) -> Ts {
    if (g.has("alpha")) return {sub(g.at(0), g.at(1), g.number("alpha"))};
    return {g.at(0) - g.at(1)};
  };
  t["div"] = [](const Case& g) -> Ts {
    if (g.has("rounding_mode")) return {div(g.at(0), g.at(1), g.s("rounding_mode"))};
    return {g.at(0) / g.at(1)};
  };
  t["round"] = [](const Case& g) -> Ts {
    return {g.has("decimals") ? round(g.t(0), g.i("decimals")) : round(g.t(0))};
  };
  t["clamp"] = [](const Case& g) -> Ts {
    if (g.n() == 3) return {clamp(g.t(0), g.at(1), g.at(2))};
    if (!g.has("max")) return {clamp(g.t(0), g.number("min"), nullptr)};
    if (!g.has("min")) return {clamp(g.t(0), nullptr, g.number("max"))};
    return {clamp(g.t(0), g.number("min"), g.number("max"))};
  };
  CASE(clamp_min, clamp_min(g.t(0), g.at(1)));
  CASE(clamp_max, clamp_max(g.t(0), g.at(1)));
  t["lerp"] = [](const Case& g) -> Ts {
    return {g.n() == 3 ? lerp(g.t(0), g.t(1), g.at(2)) : lerp(g.t(0), g.t(1), g.d("weight"))};
  };
  t["nan_to_num"] = [](const Case& g) -> Ts {
    if (!g.has("posinf")) return {nan_to_num(g.t(0), g.d("nan"))};
    return {nan_to_num(g.t(0), g.d("nan"), g.d("posinf"), g.d("neginf"))};
  };
  CASE(true_divide, true_divide(g.at(0), g.at(1)));
  CASE(pow, pow(g.at(0), g.at(1)));
  CASE(where, where(g.at(0), g.at(1), g.at(2)));
  CASE(gelu, gelu(g.t(0), g.s("approximate", "none")));
  CASE(logit, logit(g.t(0), g.d("eps", -1)));
  CASE(threshold, threshold(g.t(0), g.number("threshold"), g.number("value")));
  CASE(prelu, prelu(g.t(0), g.t(1)));
  CASE(glu, glu(g.t(0), g.i("dim")));
  CASE(addcmul, addcmul(g.t(0), g.t(1), g.t(2), g.number("value", 1)));
  CASE(addcdiv, addcdiv(g.t(0), g.t(1), g.t(2), g.number("value", 1)));
  CASE(masked_fill, masked_fill(g.t(0), g.t(1), g.number("value")));
  CASE(to, g.t(0).to(g.dtype("dtype")));
  CASE(bitcast, bitcast(g.t(0), g.dtype("dtype")));
}

void add_contractions(FnTable& t) {
  CASE(matmul, matmul(g.t(0), g.t(1)));
  CASE(mm, mm(g.t(0), g.t(1)));
  CASE(mv, mv(g.t(0), g.t(1)));
  CASE(dot, dot(g.t(0), g.t(1)));
  CASE(outer, outer(g.t(0), g.t(1)));
  CASE(bmm, bmm(g.t(0), g.t(1)));
  CASE(addmm, addmm(g.t(0), g.t(1), g.t(2), g.number("beta", 1), g.number("alpha", 1)));
  CASE(baddbmm, baddbmm(g.t(0), g.t(1), g.t(2), g.number("beta", 1), g.number("alpha", 1)));
  t["tensordot"] = [](const Case& g) -> Ts {
    const io::Json::Array& dims = *g.attr("dims")->as_array();
    IntList of[2];
    for (int k : {0, 1})
      for (const io::Json& d : *dims[static_cast<size_t>(k)].as_array())
        of[k].push_back(*d.as_int());
    return {tensordot(g.t(0), g.t(1), of[0], of[1])};
  };
  CASE(einsum, einsum(g.s("equation"), g.rest()));
  CASE(linear, linear(g.t(0), g.t(1), g.t(2)));
  CASE(bilinear, bilinear(g.t(0), g.t(1), g.t(2), g.t(3)));
#define CONV(name)                                                                      \
  t[#name] = [](const Case& g) -> Ts {                                                  \
    const io::Json* p = g.attr("padding");                                              \
    if (p && p->as_string())                                                            \
      return {name(g.t(0), g.t(1), g.t(2), g.list("stride", {1}), *p->as_string(),      \
                   g.list("dilation", {1}), g.i("groups", 1))};                         \
    return {name(g.t(0), g.t(1), g.t(2), g.list("stride", {1}), g.list("padding", {0}), \
                 g.list("dilation", {1}), g.i("groups", 1))};                           \
  };
  CONV(conv1d)
  CONV(conv2d)
  CONV(conv3d)
#undef CONV
#define CONV(name)                                                                       \
  CASE(name, name(g.t(0), g.t(1), g.t(2), g.list("stride", {1}), g.list("padding", {0}), \
                  g.list("output_padding", {0}), g.i("groups", 1), g.list("dilation", {1})));
  CONV(conv_transpose1d)
  CONV(conv_transpose2d)
  CONV(conv_transpose3d)
#undef CONV
  CASE(scaled_dot_product_attention,
       scaled_dot_product_attention(g.t(0), g.t(1), g.t(2), g.t(3), 0, g.b("is_causal"),
                                    g.d("scale"), g.b("enable_gqa")));
}

void add_reductions(FnTable& t) {
#define REDUCE(name) CASE(name, name(g.t(0), g.list("dim"), g.b("keepdim")))
  REDUCE(amax);
  REDUCE(amin);
  REDUCE(nansum);
  REDUCE(any);
  REDUCE(all);
  REDUCE(logsumexp);
#undef REDUCE
#define REDUCE(name)                                                                            \
  t[#name] = [](const Case& g) -> Ts {                                                          \
    if (g.has("dtype")) return {name(g.t(0), g.list("dim"), g.b("keepdim"), g.dtype("dtype"))}; \
    return {name(g.t(0), g.list("dim"), g.b("keepdim"))};                                       \
  }
  REDUCE(sum);
  REDUCE(mean);
  REDUCE(prod);
#undef REDUCE
  CASE(count_nonzero, count_nonzero(g.t(0), g.list("dim")));
  CASE(var, tandem::var(g.t(0), g.list("dim"), g.d("correction", 1), g.b("keepdim")));
  CASE(std, tandem::std(g.t(0), g.list("dim"), g.d("correction", 1), g.b("keepdim")));
  t["var_mean"] = [](const Case& g) -> Ts {
    auto [v, m] = var_mean(g.t(0), g.list("dim"), g.d("correction", 1), g.b("keepdim"));
    return {v, m};
  };
  CASE(norm, norm(g.t(0), g.d("p", 2), g.list("dim"), g.b("keepdim")));
#define PICK(name)                                     \
  t[#name] = [](const Case& g) -> Ts {                 \
    if (!g.has("dim")) return {name(g.t(0))};          \
    return {name(g.t(0), g.i("dim"), g.b("keepdim"))}; \
  }
  PICK(argmax);
  PICK(argmin);
#undef PICK
#define PICK(name)                                          \
  t[#name] = [](const Case& g) -> Ts {                      \
    if (!g.has("dim")) return {name(g.t(0))};               \
    auto [v, i] = name(g.t(0), g.i("dim"), g.b("keepdim")); \
    return {v, i};                                          \
  }
  PICK(max);
  PICK(min);
#undef PICK
  CASE(cumsum, cumsum(g.t(0), g.i("dim")));
  CASE(cumprod, cumprod(g.t(0), g.i("dim")));
  CASE(logcumsumexp, logcumsumexp(g.t(0), g.i("dim")));
  t["cummax"] = [](const Case& g) -> Ts {
    auto [v, i] = g.op == "cummax" ? cummax(g.t(0), g.i("dim")) : cummin(g.t(0), g.i("dim"));
    return {v, i};
  };
  t["cummin"] = t["cummax"];
  CASE(diff, diff(g.t(0), 1, g.i("dim", -1)));
}

void add_views(FnTable& t) {
  CASE(reshape, reshape(g.t(0), g.list("shape")));
  CASE(permute, permute(g.t(0), g.list("dims")));
  CASE(transpose, transpose(g.t(0), g.i("dim0"), g.i("dim1")));
  CASE(t, g.t(0).t());
  CASE(movedim, movedim(g.t(0), g.list("source"), g.list("destination")));
  CASE(flatten, flatten(g.t(0), g.i("start_dim", 0), g.i("end_dim", -1)));
  CASE(unflatten, unflatten(g.t(0), g.i("dim"), g.list("sizes")));
  t["squeeze"] = [](const Case& g) -> Ts {
    return {g.has("dim") ? squeeze(g.t(0), g.list("dim")) : squeeze(g.t(0))};
  };
  CASE(unsqueeze, unsqueeze(g.t(0), g.i("dim")));
  CASE(expand, expand(g.t(0), g.list("size")));
  CASE(broadcast_to, broadcast_to(g.t(0), g.list("size")));
  CASE(narrow, narrow(g.t(0), g.i("dim"), g.i("start"), g.i("length")));
  CASE(select, select(g.t(0), g.i("dim"), g.i("index")));
  CASE(slice, slice(g.t(0), g.i("dim"), g.i("start", 0), g.i("stop", Slice::kEnd), g.i("step", 1)));
  CASE(diagonal, diagonal(g.t(0), g.i("offset"), g.i("dim1"), g.i("dim2", 1)));
  CASE(diag, diag(g.t(0), g.i("diagonal")));
  CASE(flip, flip(g.t(0), g.list("dims")));
  CASE(roll, roll(g.t(0), g.list("shifts"), g.list("dims")));
  CASE(rot90, rot90(g.t(0), g.i("k"), g.list("dims")));
  CASE(tril, tril(g.t(0), g.i("diagonal")));
  CASE(triu, triu(g.t(0), g.i("diagonal")));
  CASE(repeat, repeat(g.t(0), g.list("repeats")));
  CASE(tile, tile(g.t(0), g.list("dims")));
  t["repeat_interleave"] = [](const Case& g) -> Ts {
    if (g.n() == 2) return {repeat_interleave(g.t(0), g.t(1), g.i("dim"))};
    return {repeat_interleave(g.t(0), g.i("repeats"), g.i("dim"))};
  };
  CASE(unfold, unfold(g.t(0), g.i("dim"), g.i("size"), g.i("step")));
  CASE(cat, cat(g.rest(), g.i("dim")));
  CASE(stack, stack(g.rest(), g.i("dim")));
  t["split"] = [](const Case& g) -> Ts {
    if (g.attr("split_size")->as_int()) return split(g.t(0), g.i("split_size"), g.i("dim"));
    return split(g.t(0), g.list("split_size").to_vector(), g.i("dim"));
  };
  t["chunk"] = [](const Case& g) -> Ts { return g.t(0).chunk(g.i("chunks"), g.i("dim")); };
  t["unbind"] = [](const Case& g) -> Ts { return g.t(0).unbind(g.i("dim")); };
  t["meshgrid"] = [](const Case& g) -> Ts { return meshgrid(g.rest(), g.s("indexing")); };
  CASE(pad, pad(g.t(0), g.list("pad"), g.s("mode", "constant"), g.number("value")));
}

TensorIndices indices_of(const Case& g) {
  std::vector<TensorIndex> at;
  for (const io::Json& e : *g.attr("index")->as_array()) {
    if (const std::string* word = e.as_string()) {
      if (*word == "none")
        at.emplace_back(None);
      else
        at.emplace_back(Ellipsis);
    } else if (const io::Json* number = e.find("int")) {
      at.emplace_back(*number->as_int());
    } else if (const io::Json* tensor = e.find("tensor")) {
      at.emplace_back(g.t(static_cast<size_t>(*tensor->as_int())));
    } else {
      const io::Json::Array& s = *e.find("slice")->as_array();
      auto part = [&](size_t k, int64_t none) { return s[k].is_null() ? none : *s[k].as_int(); };
      at.emplace_back(Slice(part(0, 0), part(1, Slice::kEnd), part(2, 1)));
    }
  }
  return at;
}

void add_indexing(FnTable& t) {
  CASE(index, index(g.t(0), indices_of(g)));
  CASE(index_put, index_put(g.t(0), indices_of(g), g.at(1), g.b("accumulate")));
  CASE(gather, gather(g.t(0), g.i("dim"), g.t(1)));
  CASE(take_along_dim, take_along_dim(g.t(0), g.t(1), g.i("dim")));
  t["scatter"] = [](const Case& g) -> Ts {
    if (g.has("value")) return {scatter(g.t(0), g.i("dim"), g.t(1), g.number("value"))};
    return {scatter(g.t(0), g.i("dim"), g.t(1), g.t(2))};
  };
  CASE(scatter_add, scatter_add(g.t(0), g.i("dim"), g.t(1), g.t(2)));
  CASE(index_select, index_select(g.t(0), g.i("dim"), g.t(1)));
  CASE(index_add, index_add(g.t(0), g.i("dim"), g.t(1), g.t(2), g.number("alpha", 1)));
  CASE(index_fill, index_fill(g.t(0), g.i("dim"), g.t(1), g.number("value")));
  CASE(masked_select, masked_select(g.t(0), g.t(1)));
  CASE(nonzero, nonzero(g.t(0)));
  CASE(one_hot, one_hot(g.t(0), g.i("num_classes", -1)));
  t["embedding"] = [](const Case& g) -> Ts {
    if (g.has("padding_idx")) return {embedding(g.t(0), g.t(1), g.i("padding_idx"))};
    return {embedding(g.t(0), g.t(1))};
  };
  CASE(bincount, bincount(g.t(0), g.i("minlength")));
  t["sort"] = [](const Case& g) { return all_of(sort(g.t(0), g.i("dim", -1), g.b("descending"))); };
  CASE(argsort, argsort(g.t(0), g.i("dim", -1), g.b("descending")));
  t["topk"] = [](const Case& g) {
    return all_of(topk(g.t(0), g.i("k"), g.i("dim", -1), g.b("largest", true)));
  };
  t["arange"] = [](const Case& g) -> Ts {
    Scalar start = g.number("start"), end = g.number("end"), step = g.number("step", 1);
    if (g.has("dtype")) return {arange(start, end, step, g.dtype("dtype"))};
    return {arange(start, end, step)};
  };
  CASE(linspace, linspace(g.d("start"), g.d("end"), g.i("steps"), g.dtype("dtype")));
  CASE(eye, eye(g.i("n"), g.i("m", -1), g.dtype("dtype")));
  t["full"] = [](const Case& g) -> Ts {
    if (g.has("dtype")) return {full(g.list("size"), g.number("fill_value"), g.dtype("dtype"))};
    return {full(g.list("size"), g.number("fill_value"))};
  };
  CASE(zeros, zeros(g.list("size")));
  CASE(ones, ones(g.list("size"), g.dtype("dtype")));
}

Reduction reduction_of(const Case& g) {
  std::string r = g.s("reduction", "mean");
  return r == "mean"   ? Reduction::mean
         : r == "sum"  ? Reduction::sum
         : r == "none" ? Reduction::none
                       : Reduction::batchmean;
}

void add_norms(FnTable& t) {
  CASE(layer_norm,
       layer_norm(g.t(0), g.list("normalized_shape"), g.t(1), g.t(2), g.d("eps", 1e-5)));
  CASE(rms_norm, rms_norm(g.t(0), g.list("normalized_shape"), g.t(1), g.d("eps", 1e-5)));
  t["batch_norm"] = [](const Case& g) -> Ts {
    bool training = g.b("training");
    BatchNormResult r = batch_norm(g.t(0), g.t(1), g.t(2), g.t(3), g.t(4), training,
                                   g.d("momentum", 0.1), g.d("eps", 1e-5));
    if (!training || !g.t(1).defined()) return {r.y};
    return {r.y, r.running_mean, r.running_var};
  };
  CASE(group_norm, group_norm(g.t(0), g.i("num_groups"), g.t(1), g.t(2)));
  CASE(instance_norm, instance_norm(g.t(0)).y);
  CASE(normalize, normalize(g.t(0), g.d("p", 2), g.i("dim", 1)));
#define SOFTMAX(name)                             \
  t[#name] = [](const Case& g) -> Ts {            \
    std::optional<DType> dtype;                   \
    if (g.has("dtype")) dtype = g.dtype("dtype"); \
    return {name(g.t(0), g.i("dim"), dtype)};     \
  };
  SOFTMAX(softmax)
  SOFTMAX(log_softmax)
  SOFTMAX(softmin)
#undef SOFTMAX
  CASE(dropout, dropout(g.t(0), g.d("p"), g.b("training")));
  CASE(cosine_similarity, cosine_similarity(g.t(0), g.t(1), g.i("dim", 1)));
  CASE(pairwise_distance, pairwise_distance(g.t(0), g.t(1)));
}

void add_losses(FnTable& t) {
  CASE(cross_entropy, cross_entropy(g.t(0), g.t(1),
                                    {.weight = g.t(2),
                                     .ignore_index = g.i("ignore_index", -100),
                                     .reduction = reduction_of(g),
                                     .label_smoothing = g.d("label_smoothing")}));
  CASE(nll_loss, nll_loss(g.t(0), g.t(1),
                          {.weight = g.t(2),
                           .ignore_index = g.i("ignore_index", -100),
                           .reduction = reduction_of(g)}));
#define LOSS(name) CASE(name, name(g.t(0), g.t(1), {.reduction = reduction_of(g)}))
  LOSS(mse_loss);
  LOSS(l1_loss);
  LOSS(poisson_nll_loss);
  LOSS(hinge_embedding_loss);
  LOSS(soft_margin_loss);
#undef LOSS
  CASE(smooth_l1_loss,
       smooth_l1_loss(g.t(0), g.t(1), {.reduction = reduction_of(g), .beta = g.d("beta", 1)}));
  CASE(huber_loss,
       huber_loss(g.t(0), g.t(1), {.reduction = reduction_of(g), .delta = g.d("delta", 1)}));
  CASE(binary_cross_entropy,
       binary_cross_entropy(g.t(0), g.t(1), {.weight = g.t(2), .reduction = reduction_of(g)}));
  CASE(binary_cross_entropy_with_logits,
       binary_cross_entropy_with_logits(
           g.t(0), g.t(1), {.weight = g.t(2), .reduction = reduction_of(g), .pos_weight = g.t(3)}));
  CASE(kl_div,
       kl_div(g.t(0), g.t(1), {.reduction = reduction_of(g), .log_target = g.b("log_target")}));
  CASE(gaussian_nll_loss,
       gaussian_nll_loss(g.t(0), g.t(1), g.t(2), {.reduction = reduction_of(g)}));
  CASE(margin_ranking_loss,
       margin_ranking_loss(g.t(0), g.t(1), g.t(2),
                           {.margin = g.d("margin"), .reduction = reduction_of(g)}));
  CASE(cosine_embedding_loss,
       cosine_embedding_loss(g.t(0), g.t(1), g.t(2),
                             {.margin = g.d("margin"), .reduction = reduction_of(g)}));
  CASE(multi_margin_loss, multi_margin_loss(g.t(0), g.t(1),
                                            {.p = g.i("p", 1),
                                             .margin = g.d("margin", 1),
                                             .weight = g.t(2),
                                             .reduction = reduction_of(g)}));
  CASE(multilabel_margin_loss,
       multilabel_margin_loss(g.t(0), g.t(1), {.reduction = reduction_of(g)}));
  CASE(multilabel_soft_margin_loss,
       multilabel_soft_margin_loss(g.t(0), g.t(1),
                                   {.weight = g.t(2), .reduction = reduction_of(g)}));
  CASE(triplet_margin_with_distance_loss,
       triplet_margin_with_distance_loss(
           g.t(0), g.t(1), g.t(2),
           {.margin = g.d("margin", 1), .swap = g.b("swap"), .reduction = reduction_of(g)}));
  CASE(sigmoid_focal_loss,
       sigmoid_focal_loss(
           g.t(0), g.t(1),
           {.alpha = g.d("alpha", 0.25), .gamma = g.d("gamma", 2), .reduction = reduction_of(g)}));
  CASE(dice_loss, dice_loss(g.t(0), g.t(1), {.reduction = reduction_of(g)}));
  CASE(tversky_loss, tversky_loss(g.t(0), g.t(1),
                                  {.alpha = g.d("alpha", 0.5),
                                   .beta = g.d("beta", 0.5),
                                   .smooth = g.d("smooth", 1),
                                   .reduction = reduction_of(g)}));
  CASE(log_cosh_loss, log_cosh_loss(g.t(0), g.t(1), {.reduction = reduction_of(g)}));
  CASE(ctc_loss, ctc_loss(log_softmax(g.t(0), -1), g.t(1), g.t(2), g.t(3),
                          {.blank = g.i("blank"),
                           .reduction = reduction_of(g),
                           .zero_infinity = g.b("zero_infinity")}));
  CASE(triplet_margin_loss,
       triplet_margin_loss(g.t(0), g.t(1), g.t(2), {.reduction = reduction_of(g)}));
}

}  // namespace

Fn function_of(const std::string& op) {
  static const FnTable* table = [] {
    auto* t = new FnTable;
    add_pointwise(*t);
    add_contractions(*t);
    add_reductions(*t);
    add_views(*t);
    add_indexing(*t);
    add_norms(*t);
    add_losses(*t);
    add_math(*t);
    add_image_ops(*t);
    add_distributions(*t);
    add_names(*t);
    return t;
  }();
  auto at = table->find(op);
  return at == table->end() ? nullptr : at->second;
}

}  // namespace tandem::golden
