// SPDX-License-Identifier: Apache-2.0
// ShardedParams: the parameters of a net whose optimizer updates parts of them. Those of a unit lie
// side by side in one flat array, of which every rank owns an equal part; a parameter's shard is
// what of it lies in this rank's part (nothing, maybe). Units are gathered when a parameter is
// read, the next one of the last step ahead of it, and dropped when they are not needed any more.
// Whole parameters lie where the net is, shards there too, or on the host (offload_optimizer).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tandem/dist/data_parallel.h"
#include "tandem/dist/flat_calls_internal.h"
#include "tandem/dist/reducer_internal.h"
#include "tandem/graph/cells/absent.h"

namespace tandem::distributed {

class ShardedParams final : public tandem::detail::ValueSource {
 public:
  struct Place {
    size_t unit = 0;
    int64_t offset = 0;  ///< in the unit's flat array
    Shape shape;
    int64_t numel = 0;
    int64_t begin = 0, end = 0;  ///< its elements that lie in this rank's part
    Param shard;
    uint64_t generation = 0;  ///< of its cell when this wrote there last
    uint64_t gathered = 0;    ///< of the shard's, when it was gathered last
    bool absent = false;
  };
  struct Unit {
    std::string name;
    DType dtype = DType::f32;
    nn::Module* module = nullptr;  ///< after whose forward it is not needed; null: unknown
    std::vector<size_t> params;
    int64_t elements = 0, part = 0;
    enum class State : uint8_t { absent, coming, here } state = State::here;
    Tensor flat;
    FlatCall call;
    std::vector<uint64_t> regions;  ///< of a device: those that were `flat` in this step
    bool resolving = false;
  };

  /// Takes the values that rank 0's parameters have.
  ShardedParams(nn::Module& net, std::vector<NamedParam> params, const DataParallelOptions& options,
                std::shared_ptr<Engine> engine);
  ~ShardedParams() override;

  bool frees() const { return sharding_ == Sharding::zero3; }
  /// Do shards lie on the host, and the net elsewhere?
  bool offloads() const { return !(home_ == device_); }
  /// Where whole parameters lie, and where their shards do.
  Device device() const { return device_; }
  Device home() const { return home_; }
  const FlatCalls& calls() const { return *calls_; }
  Sharding sharding() const { return sharding_; }
  const std::vector<Unit>& units() const { return units_; }
  const std::vector<Place>& places() const { return places_; }
  /// First element of this rank's part of a unit.
  int64_t first(const Unit& u) const { return u.part * engine_.rank(); }
  std::vector<Param> shards() const;
  /// The parameter's shard, or the parameter itself where it is none of these.
  Param shard_of(const Param& p) const;

  /// Drop what was gathered before a shard changed; values that somebody wrote go to the shards.
  void sync();
  void gather_all();
  void drop_all();
  /// Unit by unit: what was not here is gathered, seen and dropped.
  void each_unit(const std::function<void(const Unit&)>& see);
  /// Has gather_all() promised all parameters?
  bool held() const { return !held_->comes_and_goes; }
  /// This unit's gradients are complete: the walk no longer reads its values.
  void used_in_backward(size_t unit);
  /// A step is over: parameters are gathered again where they are read.
  void end_step();
  /// The same in a trace: what is read from here on is gathered from the parts as they are then.
  void end_step_in(Trace& trace) const;
  /// Leave whole values in the net.
  void restore();

  /// All ranks' parts of something that has the shard's shape, as a parameter; a rank's part of a
  /// whole.
  Tensor whole_of(size_t i, const Tensor& part);
  Tensor part_of(size_t i, const Tensor& whole) const;

  void bring(const Cell& cell) override;
  Tensor refill(const Tensor& region) override;
  Tensor bring_by_rows(const Cell& cell, Trace& trace) override;
  void before_run() override;

 private:
  void make_units(nn::Module& net, int64_t cap);
  void make_shards();
  void set_roles(tandem::detail::ShardRole whole, tandem::detail::ShardRole part) const;
  void hook(nn::Module& module, size_t unit);
  std::pair<int64_t, int64_t> range(const Place& p, const Unit& u, int rank) const;
  void take_written(Unit& u);
  bool stale(const Unit& u) const;
  void launch(size_t unit);
  void finish(Unit& u);
  void fetch(size_t unit);
  void fetch_ahead(size_t unit);
  Tensor new_flat(Unit& u) const;
  bool was_read(const Unit& u) const;
  void drop(Unit& u, bool for_now);
  void after_forward(size_t unit);
  Tensor gathered_in(const Unit& u) const;
  void drop_in(Trace& trace, const Unit& u) const;
  void forget_in(Trace& trace, const Unit& u) const;

  Sharding sharding_;
  std::vector<NamedParam> params_;
  std::shared_ptr<Engine> group_;
  Engine& engine_;
  Device device_, home_;
  std::unique_ptr<FlatCalls> calls_;
  std::vector<Unit> units_;
  std::vector<Place> places_;
  std::unordered_map<const Cell*, size_t> index_;
  std::vector<std::pair<nn::Module*, int>> hooks_;
  std::shared_ptr<tandem::detail::SourceLink> link_;
  std::vector<size_t> order_, now_;  ///< in which units were read: in the last step, in this one
  size_t cursor_ = 0;
  /// Compiled programs depend on it.
  struct Held : RefCounted {
    bool comes_and_goes = true;  ///< false: all are here until drop_all() or a step's end
  };
  Ref<Held> held_ = make_ref<Held>();
};

/// Of which parameter is this entry of an optimizer's state ("conv.weight.exp_avg")?
std::optional<size_t> owner_of(const std::string& name, const std::vector<NamedParam>& params);

}  // namespace tandem::distributed
