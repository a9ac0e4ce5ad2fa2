// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/kernel_work_internal.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tandem/graph/context.h"
#include "tandem/ops/ops.h"
#include "tandem/plan/memory/step_memory_internal.h"

namespace tandem::plan {
namespace {

// Of a convolution or its derivative: do its filters see one channel each (an image of one channel
// does not make it so), and are they of 3 x 3 with as many results as there are image points? The
// filters are the second input, or what comes out.
ConvolutionKind convolution_kind(const OpDef* op, std::span<const Shape> in, const Shape& out) {
  if (!op || !op->has(kConvolution) || in.size() < 2) return {};
  const bool by_weight = op == &op::conv_backward_weight;
  const auto one_channel = [](const Shape& s) { return s.rank() >= 3 && s[1] == Dim(1); };
  const Shape &filters = by_weight ? out : in[1], &other = by_weight ? in[1] : out;
  ConvolutionKind kind;
  kind.depthwise =
      one_channel(filters) && filters[0] != Dim(1) && !one_channel(in[0]) && !one_channel(other);
  const auto four = [](const Shape& s) { return s.rank() == 4; };
  kind.winograd = four(filters) && four(in[0]) && four(other) && filters[2] == Dim(3) &&
                  filters[3] == Dim(3) && in[0][2] == other[2] && in[0][3] == other[3];
  return kind;
}

// What the row says of the kernel; `op` is null for a fused loop. Matmuls and convolutions, which
// autocast lowers, are what matrix units do; their derivatives are known by the operations that
// each element of their results takes.
void describe(Work& w, const OpDef* op, ConvolutionKind kind) {
  w.convolution = op && op->has(kConvolution);
  w.batch_norm = op && op->has(kBatchNorm);
  w.depthwise = kind.depthwise;
  w.winograd = kind.winograd;
  w.contraction = op == &op::matmul || op == &op::linear || w.convolution;
  w.backward = op == &op::attention_backward;
  w.attention = w.backward || op == &op::attention;
  w.matrix = kind.depthwise || (op && op->autocast_class == Autocast::low) ||
             w.flops > 8 * w.bytes / static_cast<double>(size_of(w.dtype));
}

// The seconds of events, one after the other.
class Intervals {
 public:
  explicit Intervals(const Profile& profile)
      : before_(profile.events.empty() ? 0 : profile.events[0].start_ns) {}
  double next(const ProfileEvent& e) {
    return 1e-9 * static_cast<double>(e.end_ns - std::exchange(before_, e.end_ns));
  }

 private:
  int64_t before_;
};

// What one step of a compiled program does, all but its seconds.
Work compiled_work(const ProfileEvent& e, const compiler::Step& s, const Executable& exe) {
  const compiler::Lowered& l = exe.lowered();
  const auto place = [&](int p) -> const auto& { return l.places[static_cast<size_t>(p)]; };
  const auto elements = [&](int p) {
    if (p < 0) return 0.0;
    const Dim n = place(p).shape.numel();
    return n.is_symbolic() ? 0.0 : static_cast<double>(n.value());
  };
  Work w{e.name, e.scope, e.flops, e.bytes};
  for (size_t i = 0; i < 2 && i < s.in.size(); ++i) w.sizes[i] = elements(s.in[i].place);
  w.kind = s.op ? s.op->name : "loop";
  std::vector<Shape> in;
  for (const compiler::StepInput& i : s.in)
    if (i.place >= 0) in.push_back(place(i.place).shape);
  const auto out = std::find_if(s.out.begin(), s.out.end(), [](int o) { return o >= 0; });
  if (out != s.out.end()) {
    w.dtype = place(*out).dtype;
    w.sizes[2] = elements(*out);
  }
  describe(w, s.op,
           out != s.out.end() ? convolution_kind(s.op, in, place(*out).shape) : ConvolutionKind{});
  if (writes_parameter(exe, s)) w.phase = static_cast<uint8_t>(Phase::update);
  return w;
}

std::vector<Work> compiled_work(const Profile& profile, const Executable& exe) {
  const compiler::Lowered& l = exe.lowered();
  std::vector<Work> all;
  Intervals seconds(profile);
  size_t k = 0;
  for (const ProfileEvent& e : profile.events) {
    if (!e.compiled || k >= l.steps.size()) continue;
    all.push_back(compiled_work(e, l.steps[k], exe));
    all.back().seconds = seconds.next(e);
    k += exe.steps_at(k);
  }
  return all;
}

std::vector<Work> eager_work(const Profile& profile, const OpRecorder& recorder) {
  std::vector<Work> all;
  Intervals seconds(profile);
  for (size_t k = 0; k < profile.events.size(); ++k) {
    const ProfileEvent& e = profile.events[k];
    const OpRecorder::Seen seen = k < recorder.ops.size() ? recorder.ops[k] : OpRecorder::Seen{};
    if (e.flops == 0 && e.bytes == 0) continue;  // views
    Work w{e.name, e.scope, e.flops, e.bytes, seen.dtype};
    describe(w, seen.op, seen.convolution);
    w.phase = seen.phase;
    w.kind = seen.op && seen.op->family == Family::pointwise ? "loop" : e.name;
    std::copy(std::begin(seen.sizes), std::end(seen.sizes), std::begin(w.sizes));
    w.seconds = seconds.next(e);
    all.push_back(std::move(w));
  }
  return all;
}

}  // namespace

void OpRecorder::before(const OpDef&, std::span<const Tensor> in) {
  if (ledger_ && context().scope) ledger_->scope = context().scope->path;
  Seen s;
  for (size_t i = 0; i < 2 && i < in.size(); ++i) {
    s.sizes[i] = elements(in[i]);
    if (in[i].defined()) s.in.push_back(in[i].shape());
  }
  open_.push_back(std::move(s));
}

void OpRecorder::after(const OpDef& op, std::span<const Tensor> out) {
  TD_ASSERT(!open_.empty());
  Seen s = std::move(open_.back());
  open_.pop_back();
  if (profile_.events.size() == ops.size()) return;  // part of a body
  s.op = &op;
  s.phase = phase_;
  for (const Tensor& t : out)
    if (t.defined()) {
      s.dtype = t.dtype();
      s.sizes[2] = elements(t);
      s.convolution = convolution_kind(&op, s.in, t.shape());
      break;
    }
  while (ops.size() < profile_.events.size()) ops.push_back(s);
}

std::vector<Work> work_of(const Profile& profile, const OpRecorder& recorder,
                          const Executable* exe) {
  return exe ? compiled_work(profile, *exe) : eager_work(profile, recorder);
}

void add_results(const Profile& profile, const OpRecorder& recorder, Workload& w) {
  std::map<std::string, int> matmuls;  // of a block so far
  uint32_t scope = 0;                  // what runs between two layers belongs to the one before
  for (size_t k = 0; k < profile.events.size() && k < recorder.ops.size(); ++k) {
    const ProfileEvent& e = profile.events[k];
    const OpRecorder::Seen& seen = recorder.ops[k];
    if (seen.phase != static_cast<uint8_t>(Phase::forward)) continue;
    w.forward_flops += e.flops;
    if (e.scope) scope = e.scope;
    if (!seen.op || seen.op->autocast_class != Autocast::low) continue;
    const std::string block = block_of(scope_path(scope));
    if (block.empty()) continue;
    const Results r{seen.sizes[2] * static_cast<double>(size_of(seen.dtype)), e.flops};
    w.matmuls.add(r);
    if (seen.op->family != Family::contraction || ++matmuls[block] % 2 == 1) w.half_matmuls.add(r);
  }
}

}  // namespace tandem::plan
