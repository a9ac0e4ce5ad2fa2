// SPDX-License-Identifier: Apache-2.0
// The answers of `tandem plan`: does it fit, how large may the batch be, how long, how much, and
// which server. Every figure is a Quantity, so it can be asked why.
#pragma once

#include <limits>

#include "tandem/plan/hardware/catalog.h"
#include "tandem/plan/quantity.h"
#include "tandem/plan/workload.h"

namespace tandem::plan {

/// What a recomputed block keeps beside what goes from block to block.
enum class Kept : uint8_t {
  boundaries,    ///< nothing
  half_matmuls,  ///< results of attention and of every second matmul, as torchtitan's "op"
  matmuls,       ///< results of attention and all matmuls
};
/// "full", "selective", "matmuls", as --recompute has them.
TD_API Kept kept_of(const std::string& name);
TD_API const char* to_string(Kept k);

/// What is learned from.
struct DataSet {
  std::string name;
  double samples = 0;  ///< images, or sequences
  double bytes = 0;    ///< on disk; 0: samples times the job's sample_bytes
  std::string source;
  std::optional<bool> files;  ///< is each sample a file of its own? None: as the job says
};
/// "imagenet", "cifar10", ..., "samples=50000", "samples=50000,gb=12", or a file or folder that is
/// there (its files are the samples). Throws Value with the nearest name.
TD_API DataSet data_set(const std::string& text);

/// How a net is spread over GPUs beside data parallel training: the GPUs that share each layer
/// (tensor parallel, activations between layers too), those that hold consecutive layers
/// (pipeline), the stages of each, and the samples of a microbatch (0: as accumulate says).
struct Parallel {
  int tensor = 1, pipeline = 1, interleave = 1;
  int64_t micro = 0;
  int parts() const { return tensor * pipeline; }
};

struct PlanRequest {
  Job job;
  int64_t batch = 0;  ///< of all GPUs; 0: 32 for each, or the largest half of it that fits
  /// Default: bf16 matmuls (f16 on GPUs without bf16); serving then uses weights of that width too.
  std::optional<Precision> precision;
  bool compiled = true;
  std::string optimizer = "AdamW";
  std::optional<DataSet> data;
  double epochs = 0, tokens = 0;  ///< 0: not asked
  std::string gpu;                ///< empty: the cheapest that fits
  int n = 1;
  int sharding = 0;  ///< ZeRO stage 0 to 3
  /// At stage 3: in the backward pass the next weights are gathered when a unit's gradients are
  /// complete (FSDP's BACKWARD_POST, Composer's default), not while they are computed.
  bool late_gathers = false;
  bool recompute = false;        ///< every block is recomputed in the backward pass
  Kept kept = Kept::boundaries;  ///< with recompute
  bool keep_gradients = false;   ///< they are there in the forward pass too: zeroed, not set free
  Framework framework = Framework::tandem;
  AttentionForm attention = AttentionForm::usual;
  int accumulate = 1;  ///< batches of a step, one after the other; of a pipeline: microbatches
  Parallel parallel = {};
  bool eight_bit_state = false;
  bool clip_norm = false;           ///< gradients are clipped by the norm of all
  double budget = 0, deadline = 0;  ///< USD, seconds; 0: none
  std::string term = "hourly";      ///< of the prices, or "spot"
};

/// Memory of one GPU by category. PyTorch's allocator keeps what is free as long as the GPU has
/// `capacity` for it: with 0 this is the least that a step can do with.
TD_API Quantity memory_of(const Workload& w, const PlanRequest& r, int n,
                          double capacity = std::numeric_limits<double>::infinity());
/// Seconds of one step on n such GPUs.
TD_API Quantity step_time(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n);
/// Units (images, tokens) per second of all n GPUs.
TD_API Quantity throughput(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n);

/// A part of the whole server. The texts show figures and nothing else that is a number.
struct ServerLine {
  std::string part;             ///< "VRAM"
  std::string key;              ///< "server.vram": asks for all of its figures
  std::string eager, compiled;  ///< what is needed
  std::string thumb;            ///< rule of thumb
  std::string cause;
  std::vector<Quantity> figures;  ///< "server.vram.eager", "server.vram.thumb"
  std::vector<std::string> also;  ///< keys of other figures that it shows
};

struct TD_API Plan {
  std::string model;
  Gpu gpu;
  int n = 1;
  int64_t batch = 0;
  bool compiled = true;
  std::string recompute;  ///< as --recompute has it; empty: nothing is recomputed
  std::string spread;     ///< as --parallel has it; empty: each GPU holds the net
  bool fits = true;
  Workload eager_work, compiled_work;
  std::vector<Quantity> figures;
  std::vector<ServerLine> server;
  std::vector<std::string> notes;  ///< advice and broken constraints
  bool within_limits = true;
  const Quantity* find(const std::string& key) const;
  const Quantity& at(const std::string& key) const;  ///< throws Value naming the nearest key
  std::vector<std::string> keys() const;  ///< of figures and of the server's lines, sorted
};

/// Throws Value for a GPU that is not known, an impossible constraint and what dry_run() throws.
TD_API Plan make_plan(const PlanRequest& r, const Catalog& catalog);
TD_API std::string to_text(const Plan& p);
TD_API io::Json to_json(const Plan& p);
/// Check every figure (plan::check), that each key has one value, and that what is repeated is
/// there.
TD_API void check(const Plan& p);
/// Where a figure, or all of a line of the server, comes from. Throws Value naming the nearest key.
TD_API std::string explain(const Plan& p, const std::string& key);

/// Take "tp=8,pp=4,dp=2,zero=1,micro=1,interleave=2" into the request: `dp` copies of the net set
/// its number of GPUs, unless that is `fixed` and must agree. Throws Value for what cannot be read.
TD_API void read_parallel(const std::string& text, PlanRequest& r, bool fixed);
/// The fastest way to spread the net over the request's GPUs that fits, or else the one that needs
/// the least memory: tensor parallel within a server, pipelines, ZeRO stages and microbatches are
/// tried. Throws Value for a request without a GPU, a batch or equal blocks.
TD_API PlanRequest best_parallel(const PlanRequest& r, const Catalog& catalog);
/// The options that say it: "tp=8,pp=4,zero=1,micro=1".
TD_API std::string to_string(const Parallel& p, int sharding);

/// A server among all.
struct Ranked {
  std::string gpu;
  int n = 1;
  int64_t batch = 0;  ///< of all its GPUs
  /// What was changed so that it fits, where nothing does as it was asked for: see rank().
  int sharding = 0;
  bool recompute = false;
  std::string changes;      ///< as options: "--sharding 3 --recompute"; empty: nothing
  bool assumed = false;     ///< its efficiency: no published runs set it
  bool lacks_bf16 = false;  ///< which was asked for: its matmuls run at the rate of f32
  bool fits = false, allowed = false, pareto = false;
  double memory = 0, capacity = 0, step = 0, rate = 0;
  double seconds = 0, usd = 0, kwh = 0;  ///< to the end, or per million units without one
};
enum class RankBy : uint8_t { cost, time, energy };
/// All GPUs and counts, best first; those that do not fit or break a limit come last. Where nothing
/// fits as asked for, rows are tried with sharding stage 3, recomputing, and both.
TD_API std::vector<Ranked> rank(const PlanRequest& r, const Catalog& catalog, RankBy by);
TD_API std::string to_text(const std::vector<Ranked>& all, const PlanRequest& r);

struct ServeRequest {
  double rps = 0;  ///< requests per second
  double p99 = 0;  ///< seconds
  double utilisation = 0.7;
};
/// A fleet that answers a given number of requests in time: GPUs, batch, latency. Throws Value
/// where one request alone takes longer than p99.
TD_API Plan serve_plan(const PlanRequest& r, const ServeRequest& s, const Catalog& catalog);

/// A run of `work` seconds with checkpoints every `interval` that cost `save`, on machines that are
/// taken away at `rate` per second and come back after `restart`: seconds that it takes, mean and
/// 90th percentile of `runs` simulated ones.
struct SpotResult {
  double mean = 0, p90 = 0, preemptions = 0;
};
TD_API SpotResult simulate_spot(double work, double interval, double save, double rate,
                                double restart, int runs = 2000, uint64_t seed = 1);

}  // namespace tandem::plan
