// SPDX-License-Identifier: Apache-2.0
// PipelineSchedule: passes in the order of pipeline_actions(), activations and their gradients as
// letters between ranks. A letter says what it is, so that those that come early are kept.
#include "tandem/dist/pipeline.h"

#include <algorithm>
#include <array>

#include "tandem/base/error.h"
#include "tandem/ops/ops.h"

namespace tandem::distributed {
namespace {

constexpr int kMostDims = 8;
/// Before the elements: forward or backward, for which stage and microbatch, dtype, shape.
using Head = std::array<int64_t, 5 + kMostDims>;
constexpr const char* kHeadLabel = "what a pipeline sends next";  // the same on both sides

std::string text_of(bool forward, int64_t stage, int64_t microbatch) {
  return fmt::format("{} of microbatch {} for stage {}", forward ? "activations" : "gradient",
                     microbatch, stage);
}

}  // namespace

PipelineSchedule::PipelineSchedule(PipelineKind kind, std::vector<PipelineStage> stages,
                                   int64_t n_microbatches, Loss loss, std::shared_ptr<Engine> group)
    : stages_(std::move(stages)),
      microbatches_(n_microbatches),
      loss_(std::move(loss)),
      group_(std::move(group)) {
  TD_CHECK(!stages_.empty() && loss_, Value, "a pipeline expects a stage and a loss");
  const auto own = static_cast<int64_t>(stages_.size());
  count_ = own * group_->size();
  for (int64_t i = 0; i < own; ++i) {
    const PipelineStage& s = stages_[static_cast<size_t>(i)];
    TD_CHECK(s.count == count_ && s.index == group_->rank() + i * group_->size(), Value,
             "rank {} of {} expects stage {} of {} as its number {}, got stage {} of {}\nStage i "
             "belongs to rank i % ranks.",
             group_->rank(), group_->size(), group_->rank() + i * group_->size(), count_, i,
             s.index, s.count);
  }
  actions_ = pipeline_actions(kind, group_->rank(), group_->size(), own, n_microbatches);
}

PipelineStage& PipelineSchedule::stage_of(int64_t index) {
  return stages_[static_cast<size_t>(index / group_->size())];
}

void PipelineSchedule::check_batch(const Tensor& x, const char* what, bool wanted) const {
  TD_CHECK(!wanted || x.defined(), Value, "rank {} of the pipeline expects {}, got none",
           group_->rank(), what);
  TD_CHECK(!wanted || (x.dim() > 0 && x.size(0) > 0 && x.size(0) % microbatches_ == 0), Shape,
           "{} {} does not divide into {} microbatches along its first dimension", what,
           x.shape().to_string(), microbatches_);
}

Tensor PipelineSchedule::microbatch(const Tensor& x, int64_t i) const {
  const int64_t rows = x.size(0) / microbatches_;
  return narrow(x, 0, i * rows, rows);
}

// ---- letters

void PipelineSchedule::send(bool forward, int64_t stage, int64_t microbatch, const Tensor& value) {
  const Tensor elements = value.detach().contiguous();
  TD_CHECK(elements.dim() <= kMostDims, Unsupported,
           "a pipeline passes on at most {} dimensions, got {}", kMostDims,
           elements.shape().to_string());
  if (group_->size() == 1) {
    early_.push_back({forward, stage, microbatch, elements});
    return;
  }
  Head head{};
  head[0] = forward;
  head[1] = stage;
  head[2] = microbatch;
  head[3] = static_cast<int64_t>(elements.dtype());
  head[4] = elements.dim();
  for (int d = 0; d < elements.dim(); ++d) head[static_cast<size_t>(5 + d)] = elements.size(d);
  const Tensor first = tensor(std::vector<int64_t>(head.begin(), head.end()));
  const int to = rank_of(stage);
  const std::string text = text_of(forward, stage, microbatch);
  sent_.emplace_back(
      group_->send({first.impl()->data, first.numel(), DType::i64}, to, {kHeadLabel}), first);
  if (elements.numel() > 0)
    sent_.emplace_back(
        group_->send({elements.impl()->data, elements.numel(), elements.dtype()}, to, {text}),
        elements);
  while (!sent_.empty() && sent_.front().first.done()) sent_.erase(sent_.begin());
}

PipelineSchedule::Letter PipelineSchedule::read_letter(int from) {
  Head head{};
  group_->recv({head.data(), static_cast<int64_t>(head.size()), DType::i64}, from, {kHeadLabel})
      .wait();
  TD_CHECK(head[4] >= 0 && head[4] <= kMostDims, Io, "rank {} has sent no activations", from);
  const Shape shape(std::vector<int64_t>(head.begin() + 5, head.begin() + 5 + head[4]));
  const Tensor value = empty(shape, static_cast<DType>(head[3]));
  if (value.numel() > 0)
    group_
        ->recv({value.impl()->data, value.numel(), value.dtype()}, from,
               {text_of(head[0] != 0, head[1], head[2])})
        .wait();
  return {head[0], head[1], head[2], value};
}

Tensor PipelineSchedule::receive(bool forward, int64_t from_stage, int64_t stage,
                                 int64_t microbatch) {
  for (;;) {
    const auto at = std::find_if(early_.begin(), early_.end(), [&](const Letter& l) {
      return (l.forward != 0) == forward && l.stage == stage && l.microbatch == microbatch;
    });
    if (at != early_.end()) {
      Tensor value = at->value;
      early_.erase(at);
      return value;
    }
    early_.push_back(read_letter(rank_of(from_stage)));
  }
}

void PipelineSchedule::begin() {
  TD_CHECK(
      !broken_, Value,
      "a step of this pipeline has thrown, and the other ranks are in the middle of it\nEnd the "
      "job and resume from its newest checkpoint.");
  broken_ = true;  // until it has ended
  held_.clear();
  early_.clear();
}
void PipelineSchedule::end() {
  for (auto& [work, value] : sent_) work.wait();
  sent_.clear();
  broken_ = false;
}

// ---- passes

void PipelineSchedule::forward(const PipelineAction& a, const Tensor& x, const Tensor& target) {
  Held h;
  h.in = a.stage == 0 ? microbatch(x, a.microbatch)
                      : receive(true, a.stage - 1, a.stage, a.microbatch);
  const bool last = a.stage + 1 == count_;
  if (is_grad_enabled() && a.stage > 0 && h.in.is_floating_point()) h.in.requires_grad_();
  h.out = (*stage_of(a.stage).part)(h.in);
  if (last && target.defined()) {
    h.out = loss_(h.out, microbatch(target, a.microbatch));
    TD_CHECK(h.out.numel() == 1, Shape, "the loss of a microbatch expects one element, got {}",
             h.out.shape().to_string());
    h.out = h.out / static_cast<double>(microbatches_);
    const Tensor value = h.out.detach().to(DType::f64);
    losses_ = losses_.defined() ? losses_ + value : value;
  } else if (!last) {
    send(true, a.stage + 1, a.microbatch, h.out);
  }
  held_[{a.stage, a.microbatch}] = std::move(h);
  most_held_ = std::max(most_held_, static_cast<int64_t>(held_.size()));
}

void PipelineSchedule::backward(const PipelineAction& a) {
  const auto at = held_.find({a.stage, a.microbatch});
  Held h = std::move(at->second);
  held_.erase(at);
  if (a.stage + 1 == count_)
    h.out.backward();
  else if (const Tensor g = receive(false, a.stage + 1, a.stage, a.microbatch);
           h.out.requires_grad())
    h.out.backward(g);
  if (a.stage == 0) return;
  const Tensor g = h.in.requires_grad() ? h.in.grad() : Tensor();
  send(false, a.stage - 1, a.microbatch, g.defined() ? g : zeros_like(h.in));
}

Tensor PipelineSchedule::step(const Tensor& x, const Tensor& target) {
  const bool first = group_->rank() == 0, last = rank_of(count_ - 1) == group_->rank();
  check_batch(x, "x", first);
  check_batch(target, "target", last);
  begin();
  losses_ = Tensor();
  most_held_ = 0;
  for (const PipelineAction& a : actions_) {
    if (a.forward)
      forward(a, x, last ? target : Tensor());
    else
      backward(a);
  }
  end();
  const NoGradGuard no_grad;
  const Tensor loss = last ? losses_.reshape({}) : zeros({}, DType::f64);
  return broadcast(loss, rank_of(count_ - 1), group_);
}

Tensor PipelineSchedule::eval(const Tensor& x) {
  const NoGradGuard no_grad;
  check_batch(x, "x", group_->rank() == 0);
  begin();
  for (const PipelineAction& a : actions_)
    if (a.forward) forward(a, x, {});
  end();
  std::vector<Tensor> out;
  if (rank_of(count_ - 1) == group_->rank())
    for (int64_t i = 0; i < microbatches_; ++i) out.push_back(held_[{count_ - 1, i}].out);
  held_.clear();
  return out.empty() ? Tensor() : cat(out, 0);
}

}  // namespace tandem::distributed
