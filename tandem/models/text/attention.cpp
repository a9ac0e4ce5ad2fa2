// SPDX-License-Identifier: Apache-2.0
// The shared parts of the transformer families.
#include "tandem/ops/nn/attention.h"
#include "tandem/graph/trace.h"
#include "tandem/models/text/attention_internal.h"
#include "tandem/ops/nn/paged_attention.h"
#include "tandem/ops/ops.h"

namespace tandem::models::detail {

Activation activation(const ModelConfig& c, const std::string& name) {
  if (name == "gelu") return [](Tensor x) { return gelu(std::move(x)); };
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast")
    return [](Tensor x) { return gelu(std::move(x), "tanh"); };
  if (name == "quick_gelu") return [](Tensor x) { return x * sigmoid(x * 1.702); };
  if (name == "relu") return [](Tensor x) { return relu(std::move(x)); };
  if (name == "silu" || name == "swish") return [](Tensor x) { return silu(std::move(x)); };
  if (name == "tanh") return [](Tensor x) { return tanh(std::move(x)); };
  c.fail("there is no activation '" + name + "'");
}

Tensor split_heads(const Tensor& x, int64_t heads) {
  return x.reshape({x.shape(0), x.shape(1), heads, x.size(2) / heads}).transpose(1, 2);
}
Tensor merge_heads(const Tensor& x) {
  return x.transpose(1, 2).reshape({x.shape(0), x.shape(2), x.size(1) * x.size(3)});
}
Tensor seen_mask(const Tensor& m) {
  if (!m.defined()) return {};
  return (m != 0).reshape({m.shape(0), 1, 1, m.shape(1)});
}
Tensor causal_mask(Dim length, const Tensor& attention_mask, int64_t window) {
  const Tensor key = arange_dim(length).reshape({1, 1, 1, length}),
               query = arange_dim(length).reshape({1, 1, length, 1});
  Tensor seen = key <= query;
  if (window > 0) seen = seen & (key > query - window);
  if (attention_mask.defined()) seen = seen & seen_mask(attention_mask);
  return seen;
}

void append_to_cache(Tensor& k, Tensor& v, nn::KVCache& cache) {
  const Tensor at = cache.length.value();
  const int64_t fresh = k.size(2);
  cache.k.write_(2, at, k);
  cache.v.write_(2, at, v);
  cache.length.assign_(at + fresh);
  k = cache.k;
  v = cache.v;
  if (is_tracing()) return;
  const int64_t seen = at.item<int64_t>() + fresh;
  k = k.narrow(2, 0, seen);
  v = v.narrow(2, 0, seen);
}
Tensor cached_mask(int64_t fresh, const DecodeState& state, int64_t window, bool padded) {
  const nn::KVCache& cache = state.layers.at(0);
  const Tensor at = cache.length.value();
  const int64_t seen = is_tracing() ? cache.max_length : at.item<int64_t>() + fresh;
  const Tensor key = arange(seen).reshape({1, 1, 1, seen}),
               query = at + arange(fresh).reshape({1, 1, fresh, 1});
  Tensor mask = key <= query;
  if (padded) mask = mask & (key >= state.start.value().reshape({-1, 1, 1, 1}));
  if (window > 0) mask = mask & (key > query - window);
  return mask;
}
Tensor cached_positions(const Tensor& ids, const DecodeState& state) {
  const Tensor at = state.layers[0].length.value();
  const Tensor p =
      at + arange(ids.size(1)).reshape({1, ids.size(1)}) - state.start.value().reshape({-1, 1});
  return maximum(p, zeros_like(p));
}

void write_paged(const PagedCache::Layer& layer, const Tensor& k, const Tensor& v,
                 const Tensor& slots) {
  const SourceLocation loc = SourceLocation::here();
  const Tensor rows = slots.reshape({-1});
  const auto put = [&](const Buffer& pool, const Tensor& x) {
    const IndexAttrs attrs;
    Cell* cells[] = {pool.cell().get()};
    Operand others[] = {Operand(x.transpose(1, 2).reshape({-1, pool.size(1), pool.size(2)}), loc),
                        Operand(rows, loc)};
    update_(op::index_put, &attrs, cells, others, loc);
  };
  put(layer.k, k);
  put(layer.v, v);
}

Tensor attend_paged(const Tensor& q, const Tensor& k, const Tensor& v, const PagedLayerCall& call,
                    double scale, double softcap) {
  write_paged(*call.layer, k, v, call.step->slots);
  return paged_attention(q, call.layer->k, call.layer->v, call.step->table, call.step->positions,
                         {call.block, scale, softcap, call.window});
}

DType dtype_of(nn::Module& model) {
  for (const Param& p : model.parameters())
    if (is_floating(p.dtype())) return p.dtype();
  return DType::f32;
}

void want(const Tensor& t, const char* name, int rank) {
  TD_CHECK(t.defined(), Value, "the model expects {}", name);
  TD_CHECK(t.dim() == rank, Shape, "the model expects {} of {} dimensions, got {}", name, rank,
           t.shape().to_string());
}

std::vector<ModelPort> text_ports(size_t rank) {
  const std::vector<int64_t> open(rank, -1);
  return {{"input_ids", DType::i64, open}, {"attention_mask", DType::i64, open, true}};
}

CausalModel::CausalModel(const ModelConfig& c, bool head, CacheSizes sizes, int64_t window)
    : PretrainedModel(c), head_(head), cache_(sizes), window_(window) {}

std::vector<ModelPort> CausalModel::inputs() const { return text_ports(); }
std::vector<std::string> CausalModel::output_names() const {
  return {head_ ? "logits" : "last_hidden_state"};
}
std::vector<Tensor> CausalModel::run(const ModelInputs& in) {
  want(in.input_ids, "input_ids", 2);
  const Dim length = in.input_ids.shape(1);
  CausalCall call{.ids = in.input_ids, .positions = arange_dim(length).reshape({1, length})};
  if (in.attention_mask.defined()) call.mask = causal_mask(length, in.attention_mask);
  if (window_ > 0) call.window = causal_mask(length, in.attention_mask, window_);
  Tensor x = hidden(call);
  return {head_ ? logits(x) : x};
}
DecodeState CausalModel::start_decoding(int64_t n, int64_t length) {
  DecodeState s;
  const DType dtype = dtype_of(module());
  for (int64_t i = 0; i < cache_.layers; ++i)
    s.layers.emplace_back(n, cache_.heads, length, cache_.head_dim, dtype);
  s.start = Buffer(zeros({n}, DType::i64));
  return s;
}
Tensor CausalModel::decode(const Tensor& ids, DecodeState& state) {
  const int64_t fresh = ids.size(1);
  CausalCall call{.ids = ids,
                  .positions = cached_positions(ids, state),
                  .mask = cached_mask(fresh, state),
                  .state = &state};
  if (window_ > 0) call.window = cached_mask(fresh, state, window_);
  return logits(hidden(call).select(1, -1));
}
PagedCache empty_pool(const PoolSizes& s, DType dtype, int64_t blocks, int64_t block) {
  TD_CHECK(blocks > 1 && block > 0, Value, "a pool expects at least 2 blocks of 1, got {} of {}",
           blocks, block);
  PagedCache cache{{}, block};
  const auto empty = [&] { return Buffer(zeros({blocks * block, s.heads, s.head_dim}, dtype)); };
  for (int64_t i = 0; i < s.layers; ++i) cache.layers.push_back({empty(), empty()});
  return cache;
}
Tensor values_at(const Tensor& x, const Tensor& last) {
  const bool several = last.dim() == 2;
  if (x.size(1) == 1 && !several) return x.select(1, 0);
  const int64_t wanted = several ? last.size(1) : 1;
  const Tensor at = last.reshape({x.size(0), wanted, 1}).expand({x.size(0), wanted, x.size(2)});
  const Tensor y = gather(x, 1, at);
  return several ? y : y.squeeze(1);
}

PagedCache CausalModel::start_paged(int64_t blocks, int64_t block) {
  TD_CHECK(head_, Unsupported, "the model has no head that gives logits");
  return empty_pool(cache_, dtype_of(module()), blocks, block);
}
Tensor CausalModel::decode_paged(const PagedStep& step, PagedCache& cache) {
  const CausalCall call{.ids = step.ids,
                        .positions = maximum(step.positions, zeros_like(step.positions)),
                        .pool = &cache,
                        .step = &step};
  return logits(values_at(hidden(call), step.last));
}

}  // namespace tandem::models::detail
