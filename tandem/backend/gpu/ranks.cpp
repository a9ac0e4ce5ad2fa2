// SPDX-License-Identifier: Apache-2.0
// Calls between devices run in a stream of their own, so that the device computes meanwhile: events
// lead from the stream of the ops there and back.
#include <mutex>

#include "tandem/backend/gpu/engine_internal.h"
#include "tandem/backend/gpu/ranks_library.h"

namespace tandem::gpu {
namespace {

class EngineRanks final : public DeviceRanks {
 public:
  EngineRanks(Engine& engine, RanksLibrary& library, std::unique_ptr<RanksComm> comm)
      : engine_(engine), library_(library), comm_(std::move(comm)) {
    Context& c = engine_.context();
    engine_.check(c.create_stream("calls of ranks", side_));
    engine_.check(c.create_event(before_));
    engine_.check(c.create_event(after_));
  }
  ~EngineRanks() override {
    Context& c = engine_.context();
    (void)c.synchronize_stream(side_);
    comm_.reset();
    (void)c.destroy_event(before_);
    (void)c.destroy_event(after_);
    (void)c.destroy_stream(side_);
  }
  EngineRanks(const EngineRanks&) = delete;
  EngineRanks& operator=(const EngineRanks&) = delete;

  bool takes(DType dtype) const override { return library_.takes(dtype); }
  void start(const DeviceCall& call, Stream stream) override {
    const std::lock_guard hold(lock_);
    Context& c = engine_.context();
    engine_.check(c.record(before_, engine_.stream(stream)));
    engine_.check(c.wait(side_, before_));
    engine_.watched("calls of ranks", side_, [&] { engine_.check(comm_->call(call, side_)); });
  }
  void wait(Stream stream) override {
    const std::lock_guard hold(lock_);
    Context& c = engine_.context();
    engine_.check(c.record(after_, side_));
    engine_.check(c.wait(engine_.stream(stream), after_));
  }

 private:
  Engine& engine_;
  RanksLibrary& library_;
  std::unique_ptr<RanksComm> comm_;
  std::mutex lock_;
  StreamRef side_ = nullptr;
  EventRef before_ = nullptr, after_ = nullptr;
};

}  // namespace

bool Engine::can_join_ranks(std::string& why) {
  Status status;
  if (context_->ranks_library(status)) return true;
  why = status.text();
  return false;
}

std::unique_ptr<DeviceRanks> Engine::join_ranks(const RankPlace& place, std::string& why) {
  Status status;
  RanksLibrary* library = context_->ranks_library(status);
  std::string id;
  if (library && place.rank == 0) status = library->make_id(id);
  place.share(place.group, id);  // an empty one where rank 0 could not make it
  if (library && status.ok() && id.empty()) status = {Code::unavailable, "rank 0 has no id"};
  std::unique_ptr<RanksComm> comm;
  if (library && status.ok()) status = library->join(id, place.rank, place.size, comm);
  if (!comm) {
    why = status.text();
    return nullptr;
  }
  return std::make_unique<EngineRanks>(*this, *library, std::move(comm));
}

}  // namespace tandem::gpu
