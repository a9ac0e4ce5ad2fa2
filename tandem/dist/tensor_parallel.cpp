// SPDX-License-Identifier: Apache-2.0
// Values that go from one layout to another, and the loss over classes that no rank has all of.
#include "tandem/dist/tensor_parallel.h"

#include "tandem/base/error.h"
#include "tandem/dist/collectives_internal.h"
#include "tandem/dist/tensor_parallel_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::distributed {
namespace {

using detail::cross;
using detail::Crossing;

// [ranks, ...x] -> the rows side by side along `dim` of x.
Tensor side_by_side(const Tensor& rows, int64_t dim) {
  return movedim(rows, {0}, {dim}).flatten(dim, dim + 1);
}
// The reverse: [ranks, ...part].
Tensor as_rows(const Tensor& x, int64_t dim, int64_t ranks) {
  TD_CHECK(x.size(dim) % ranks == 0, Shape, "dimension {} of {} does not divide by {} ranks", dim,
           x.shape().to_string(), ranks);
  return movedim(x.unflatten(dim, {ranks, x.size(dim) / ranks}), {dim}, {0}).contiguous();
}

}  // namespace

const char* to_string(Layout layout) {
  switch (layout) {
    case Layout::replicated:
      return "replicated";
    case Layout::shared:
      return "shared";
    case Layout::sharded:
      return "sharded";
    case Layout::sequence:
      return "sequence";
    case Layout::partial:
      return "partial";
  }
  return "?";
}

Tensor redistribute(Tensor x, Layout from, Layout to, const std::shared_ptr<Engine>& group,
                    int64_t sequence_dim, SourceLocation loc) {
  if (from == to || group->size() == 1) return x;
  const auto dim = [&](Layout l) {
    return int64_t{normalize_dim(l == Layout::sharded ? -1 : sequence_dim, x.dim())};
  };
  const auto sliced = [](Layout l) { return l == Layout::sharded || l == Layout::sequence; };
  if (from == Layout::replicated && to == Layout::shared) return cross(Crossing::copy, x, group);
  if (from == Layout::partial && to == Layout::replicated) return cross(Crossing::reduce, x, group);
  if (from == Layout::replicated && sliced(to))
    return cross(Crossing::scatter, as_rows(x, dim(to), group->size()), group);
  if (sliced(from) && to == Layout::replicated)
    return side_by_side(cross(Crossing::gather, x.contiguous(), group), dim(from));
  // The gradient of the sum of the ranks' losses, of which each has a part, is that of the loss.
  if (sliced(from) && to == Layout::shared)
    return side_by_side(all_gather(x.contiguous(), group, loc), dim(from));
  if (from == Layout::partial && sliced(to))
    return reduce_scatter(as_rows(x, dim(to), group->size()), ReduceOp::sum, group, loc);
  TD_FAIL(Unsupported, "there is no way from the layout {} to {}", to_string(from), to_string(to));
}

Tensor parallel_cross_entropy(const Tensor& logits, const Tensor& target,
                              const std::shared_ptr<Engine>& or_none, ParallelCrossEntropyOptions o,
                              SourceLocation loc) {
  const bool narrow = logits.defined() && size_of(logits.dtype()) < size_of(DType::f32);
  const Tensor x = narrow ? logits.to(DType::f32) : logits;
  const std::shared_ptr<Engine>& group = or_none ? or_none : world();
  TD_CHECK(x.defined() && target.defined() && x.dim() == target.dim() + 1, Shape,
           "parallel_cross_entropy expects x [..., classes of this rank] and target [...], got {} "
           "and {}",
           x.defined() ? x.shape().to_string() : "nothing",
           target.defined() ? target.shape().to_string() : "nothing");
  const int64_t own = x.size(-1), ranks = group->size();
  const int64_t classes = o.vocabulary > 0 ? o.vocabulary : own * ranks;
  const auto [begin, end] = detail::share_of(classes, group->rank(), ranks);
  TD_CHECK(end - begin == own, Shape,
           "rank {} of {} has {} classes of {}, x is {}\nSet ParallelCrossEntropyOptions::"
           "vocabulary to the number of all classes.",
           group->rank(), ranks, end - begin, classes, x.shape().to_string());
  const Tensor label = target.to(DType::i64);
  const Tensor counts = label != o.ignore_index;
  // A label that no rank has is left for gather() to find.
  const Tensor elsewhere = ((label >= 0) & (label < classes)) & ((label < begin) | (label >= end));
  const Tensor mine = counts & logical_not(elsewhere);
  const Tensor at = where(mine, label - begin, 0).unsqueeze(-1);

  const Tensor most = all_reduce(x.detach().amax({-1}, true), ReduceOp::max, group, loc);
  const Tensor shifted = x - most;
  const Tensor sum = cross(Crossing::reduce, exp(shifted).sum({-1}), group, loc);
  const Tensor picked = where(mine, gather(shifted, -1, at).squeeze(-1), 0.0);
  const Tensor losses = log(sum) - cross(Crossing::reduce, picked, group, loc);
  return where(counts, losses, 0.0).sum() / counts.to(x.dtype()).sum();
}

}  // namespace tandem::distributed
