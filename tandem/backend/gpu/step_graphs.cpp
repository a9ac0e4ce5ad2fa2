// SPDX-License-Identifier: Apache-2.0
// Work that is recorded once and replayed as a graph of the driver's. It is captured in a stream
// that nothing else uses, so that other threads keep working, and replayed in any.
#include "tandem/backend/gpu/engine_internal.h"
#include "tandem/base/error.h"

namespace tandem::gpu {
namespace {

thread_local Recording* this_recording = nullptr;

// Launches of this thread are recorded while it lives.
class RecordingGuard {
 public:
  RecordingGuard(const Engine& e, std::atomic<int>& watchers)
      : outer_(this_recording), watchers_(watchers) {
    now.engine = &e;
    this_recording = &now;
    ++watchers_;
  }
  ~RecordingGuard() {
    --watchers_;
    this_recording = outer_;
  }
  RecordingGuard(const RecordingGuard&) = delete;
  RecordingGuard& operator=(const RecordingGuard&) = delete;

  Recording now;

 private:
  Recording* outer_;
  std::atomic<int>& watchers_;
};

class DriverGraph final : public StepGraph {
 public:
  DriverGraph(Engine& e, GraphRef graph, const Recording& made)
      : StepGraph(made.launches), engine_(e), graph_(graph), reports_(made.reports) {}
  ~DriverGraph() override { (void)engine_.context().destroy_graph(graph_); }

  bool ready() const override { return !engine_.times_launches(); }
  void replay(tandem::Stream stream) override {
    engine_.refuse_in_recording("a recording");
    engine_.check(engine_.context().replay(graph_, engine_.stream(stream)));
    if (reports_) engine_.expect_reports();
  }

 private:
  Engine& engine_;
  GraphRef graph_;
  bool reports_;
};

}  // namespace

Recording* Engine::recording() const {
  return this_recording && this_recording->engine == this ? this_recording : nullptr;
}

void Engine::refuse_in_recording(const char* what) const {
  if (TD_UNLIKELY(recording() != nullptr)) TD_FAIL(Unsupported, "{} cannot be recorded", what);
}

void Engine::synchronize() {
  std::shared_lock hold(graph_lock_);
  check(context_->synchronize());
}

std::unique_ptr<StepGraph> Engine::record(RecordableWork& work, std::string& why) {
  refuse_in_recording("a recording");
  if (!info().graphs) {
    why = "graphs of this driver save nothing";
    return nullptr;
  }
  std::lock_guard hold(graph_lock_);
  Status status;
  if (!recorder_) status = context_->create_stream("recorder", recorder_);
  if (status.ok()) status = context_->begin_capture(recorder_);
  if (!status.ok()) {
    why = status.text();
    return nullptr;
  }
  RecordingGuard guard(*this, watchers_);
  try {
    work.put({recorder_});
  } catch (const Error& e) {
    why = e.message();
  } catch (const std::exception& e) {
    why = e.what();
  }
  GraphRef graph = nullptr;
  status = context_->end_capture(recorder_, graph);
  if (why.empty() && status.ok()) return std::make_unique<DriverGraph>(*this, graph, guard.now);
  if (why.empty()) why = status.text();
  if (graph) (void)context_->destroy_graph(graph);
  return nullptr;
}

}  // namespace tandem::gpu
