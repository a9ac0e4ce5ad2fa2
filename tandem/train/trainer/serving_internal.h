// SPDX-License-Identifier: Apache-2.0
// A run with parameter servers (TrainStrategy::ps): rank 0 runs the Trainer's loop, with gradients
// that the workers compute; those only work, and further servers only update their share. What a
// batch gave travels as a list of numbers.
#pragma once

#include <future>

#include "tandem/dist/parameter_server.h"
#include "tandem/train/trainer/trainer_internal.h"

namespace tandem::train {

/// Lists of numbers by name, as ranks tell them to each other.
using NamedNumbers = std::vector<std::pair<std::string, std::vector<double>>>;
std::string pack(const NamedNumbers& all);
NamedNumbers unpack(std::string_view text);

struct Trainer::Serving {
  Trainer& t;
  distributed::ParameterServer server;
  data::AnyPipeline whole;            ///< the data; batches are loaded by the workers
  data::AnyPipeline* pass = nullptr;  ///< the server's way through it
  // Of the last update:
  double rows = 0, loss_sum = 0;
  std::vector<NamedNumbers> reports;  ///< of the parts

  Serving(Trainer& trainer, const data::AnyPipeline& data)
      : t(trainer),
        server(t.model_, {.staleness = t.options_.ps_staleness,
                          .servers = static_cast<int>(t.options_.ps_servers)}),
        whole(data) {}
  /// Has each of several servers a share?
  bool shared() const { return server.servers() > 1; }
  /// The optimizer updates this server's share, or all of rank 0's net again.
  void share_out();
  void make_whole();

  /// The positions of the data, without its elements.
  data::AnyPipeline positions() const;
  /// `whole` stands where the pass does, for callbacks.
  void follow() { whole.load_state(pass->state()); }
  /// Rank 0: the update that the batch delivered last completes.
  StepResult step();
  void merge_metrics();
  /// The batch that was delivered last.
  Batch batch() const;
  /// The others, until rank 0 lets them go: workers compute, servers update.
  FitResult work();

 private:
  /// A part of a batch.
  struct Element {
    int64_t epoch = 0, batch = 0, part = 0, parts = 1;
    friend bool operator==(const Element&, const Element&) = default;
  };
  std::optional<distributed::ServerTask> task_of(int64_t ahead, int64_t begin) const;
  Batch load(const Element& e);
  /// A thread loads what is likely to be asked for next.
  void load_ahead(const Element& e);
  std::string compute(const distributed::ServerTask& task);
  /// What the workers report of an update: its loss; the figures go to `out`.
  double take_reports(const std::vector<std::string>& notes, StepResult& out);
  /// What the other servers need of an update: the loss and the optimizer's options.
  std::string update_note(double loss) const;
  void update(const std::string& note) const;

  Element expected_;
  std::future<Batch> ahead_;  ///< it; destroying it waits for the thread
};

}  // namespace tandem::train
