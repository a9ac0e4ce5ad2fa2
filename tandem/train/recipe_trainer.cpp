// SPDX-License-Identifier: Apache-2.0
// `trainer:` of a recipe: TrainerOptions key by key.
#include "tandem/train/recipe_parts_internal.h"

namespace tandem::train {
namespace {

int64_t at_least(Options& o, const char* key, int64_t otherwise, int64_t least,
                 const char* what = "") {
  const int64_t v = o.whole(key, otherwise);
  if (v < least) o.fail(key, fmt::format("wants {} or more{}, got {}", least, what, v));
  return v;
}

// -1: all of them.
int64_t limit(Options& o, const char* key) {
  const int64_t v = o.whole(key, -1);
  if (v < -1) o.fail(key, fmt::format("wants a number of batches, or -1 for all, got {}", v));
  return v;
}

AverageOptions average_options(Options o) {
  AverageOptions a;
  const std::string type = o.text("type", "none");
  if (type != "none" && type != "ema" && type != "swa")
    o.fail("type", fmt::format("wants ema, swa or none, got '{}'", type));
  a.type = type == "ema" ? AverageKind::ema : type == "swa" ? AverageKind::swa : AverageKind::none;
  if (a.type == AverageKind::none) {
    o.finish();
    return a;
  }
  const bool ema = a.type == AverageKind::ema;
  if (ema) {
    a.decay = o.number("decay", a.decay);
    if (a.decay < 0 || a.decay > 1) o.fail("decay", "wants a number from 0 to 1");
    a.warmup = o.flag("warmup", a.warmup);
  }
  a.every = at_least(o, "every", ema ? 1 : 0, 0, " updates (0: at each epoch's end)");
  a.start = o.number("start", ema ? 0.0 : 0.75);
  if (a.start < 0 || a.start > 1) o.fail("start", "wants a share of the run, from 0 to 1");
  a.buffers = o.flag("buffers", a.buffers);
  o.finish();
  return a;
}

}  // namespace

PreemptOptions preempt_options(Options& o) {
  PreemptOptions p;
  const std::string name = o.text("preempt_signal", "");
  if (!name.empty()) {
    p.signal = signal_of(name);
    if (p.signal == 0)
      o.fail("preempt_signal", fmt::format("wants USR1, USR2, HUP or TERM, got '{}'", name));
  }
  p.url = o.text("preempt_url", "");
  if (!p.url.empty() && p.url != "aws" && p.url != "gcp" && !p.url.starts_with("http://"))
    o.fail("preempt_url", fmt::format("wants aws, gcp or http://..., got '{}'", p.url));
  p.every = o.number("preempt_every", p.every);
  if (p.every <= 0) o.fail("preempt_every", "wants a number of seconds above 0");
  p.deadline = o.number("preempt_deadline", p.deadline);
  if (p.deadline < 0) o.fail("preempt_deadline", "wants a number of seconds");
  return p;
}

TrainerOptions trainer_options(Options& o, bool progress) {
  TrainerOptions t;
  t.max_epochs = o.whole("epochs", t.max_epochs);
  t.max_steps = o.whole("max_steps", t.max_steps);
  t.max_seconds = o.number("max_seconds", t.max_seconds);
  t.accumulate = o.whole("accumulate", t.accumulate);
  t.clip_norm = o.number("clip_norm", t.clip_norm);
  if (t.clip_norm < 0) o.fail("clip_norm", "wants a norm above 0, or 0 for no clipping");
  if (t.max_epochs < 0) o.fail("epochs", fmt::format("wants 0 or more, got {}", t.max_epochs));
  if (t.accumulate < 1) o.fail("accumulate", fmt::format("wants 1 or more, got {}", t.accumulate));
  t.compile = o.flag("compile", t.compile);
  t.metrics = o.texts("metrics", {"accuracy"});
  t.train_metrics = o.flag("train_metrics", t.train_metrics);
  t.log_every = at_least(o, "log_every", t.log_every, 1, " steps");
  t.val_every_epochs = at_least(o, "val_every", t.val_every_epochs, 1, " epochs");
  t.val_every_steps = at_least(o, "val_every_steps", t.val_every_steps, 0);
  t.sanity_batches = at_least(o, "sanity_batches", t.sanity_batches, 0);
  t.limit_train_batches = limit(o, "limit_train_batches");
  t.limit_val_batches = limit(o, "limit_val_batches");
  t.overfit_batches = at_least(o, "overfit_batches", t.overfit_batches, 0);
  t.fast_dev_run = at_least(o, "fast_dev_run", t.fast_dev_run, 0);
  t.barebones = o.flag("barebones", t.barebones);
  t.save_every_steps = o.whole("save_every", t.save_every_steps);
  t.checkpoints.keep_last = at_least(o, "keep", t.checkpoints.keep_last, 1);
  t.checkpoints.keep_best = at_least(o, "keep_best", t.checkpoints.keep_best, 0);
  t.monitor = o.text("monitor", "");
  const std::string precision = o.text("precision", "fp32");
  if (precision != "fp32" && precision != "bf16" && precision != "fp16")
    o.fail("precision", "wants fp32, bf16 or fp16");
  t.bf16 = precision == "bf16";
  t.f16 = precision == "fp16";
  const std::string nonfinite = o.text("on_nonfinite", "stop");
  if (nonfinite != "stop" && nonfinite != "skip" && nonfinite != "off")
    o.fail("on_nonfinite", "wants stop, skip or off");
  t.on_nonfinite = nonfinite == "stop"   ? OnNonFinite::stop
                   : nonfinite == "skip" ? OnNonFinite::skip
                                         : OnNonFinite::off;
  t.average = average_options(o.part("average"));
  t.preempt = preempt_options(o);
  t.progress = progress;
  return t;
}

}  // namespace tandem::train
