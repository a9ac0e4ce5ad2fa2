// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/distill.h"

#include "tandem/ops/ops.h"

namespace tandem::train {

Tensor distillation_loss(const Tensor& student, const Tensor& teacher, double temperature) {
  TD_CHECK(temperature > 0, Value, "a temperature of {} was asked for, expected more than 0",
           temperature);
  TD_CHECK(student.dim() >= 2 && student.shape() == teacher.shape(), Shape,
           "the net gives {}, its teacher {}: expected logits [n, classes, ...] of one shape",
           student.shape().to_string(), teacher.shape().to_string());
  const auto logs = [&](const Tensor& t) {
    return log_softmax(t.to(accumulation_dtype(t.dtype())) / temperature, 1);
  };
  const Tensor want = logs(teacher), got = logs(student);
  return mean(sum(exp(want) * (want - got), {1})) * (temperature * temperature);
}

StepFunction distilled(StepFunction step, nn::Module& model,
                       std::function<Tensor(const Batch&)> teacher, const DistillOptions& o) {
  check_fields(any_fields(o), "distilled");
  return
      [step = std::move(step), net = &model, teacher = std::move(teacher), o](const Batch& batch) {
        StepOutput out = step(batch);
        if (!net->is_training()) return out;
        TD_CHECK(
            out.output.defined(), Unsupported,
            "the model's step gives a loss alone: there are no logits to compare with a teacher's");
        Tensor logits;
        {
          const NoGradGuard no_grad;
          logits = teacher(batch);
        }
        const Tensor own = mean_loss(out.loss, {});
        out.loss =
            distillation_loss(out.output, logits, o.temperature) * o.alpha + own * (1.0 - o.alpha);
        return out;
      };
}

}  // namespace tandem::train
