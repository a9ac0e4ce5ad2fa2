// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/server_share_internal.h"

#include <algorithm>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/dist/reduce_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::distributed {

// ---- calls among servers

namespace {

class EngineOfServers final : public Engine {
 public:
  EngineOfServers(std::shared_ptr<Engine> all, int servers)
      : Engine(all->rank(), servers), all_(std::move(all)) {}
  const char* name() const override { return all_->name(); }
  Member member(int rank) const override { return all_->member(rank); }
  std::shared_ptr<Engine> split(int, int) override { refuse("split()"); }
  void abort(const std::string& reason) noexcept override { all_->abort(reason); }
  void set_step(int64_t step) noexcept override { all_->set_step(step); }

 protected:
  Work submit(Call c) override {
    const bool sums = c.kind == CallKind::all_reduce;
    if (!sums && c.kind != CallKind::broadcast) refuse(to_string(c.kind));
    const auto ranks = static_cast<size_t>(size());
    std::vector<std::vector<char>> theirs(ranks, std::vector<char>(c.in.bytes()));
    std::vector<Work> calls;
    std::vector<const void*> parts(ranks, c.in.data);
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      const Array there{theirs[static_cast<size_t>(r)].data(), c.in.count, c.in.dtype};
      parts[static_cast<size_t>(r)] = there.data;
      calls.push_back(all_->send(c.in, r, {c.options.label}));
      calls.push_back(all_->recv(there, r, {c.options.label}));
    }
    std::exception_ptr error;  // nobody may write to memory that is gone
    for (Work& w : calls) try {
        w.wait();
      } catch (...) {
        error = std::current_exception();
      }
    if (error) std::rethrow_exception(error);
    if (sums)
      reduce_parts(parts, c.out.data, c.out.count, c.out.dtype, c.op, c.options.divisor);
    else if (c.peer != rank() && c.out.count > 0)
      std::memcpy(c.out.data, parts[static_cast<size_t>(c.peer)], c.out.bytes());
    return Work();
  }

 private:
  [[noreturn]] static void refuse(const char* what) {
    TD_FAIL(Unsupported,
            "{} among parameter servers, whose group knows all_reduce() and broadcast()", what);
  }
  std::shared_ptr<Engine> all_;
};

}  // namespace

std::shared_ptr<Engine> engine_of_servers(std::shared_ptr<Engine> all, int servers) {
  return std::make_shared<EngineOfServers>(std::move(all), servers);
}

// ---- the optimizer

OptimizerShare::OptimizerShare(optim::Optimizer& optimizer, const nn::Module& net, int servers,
                               int server)
    : optimizer_(optimizer), server_(server), whole_(optimizer.params()) {
  const NoGradGuard no_grad;
  const std::vector<int> owners = servers_of(net, servers);
  std::unordered_map<const Cell*, int> server_of_cell;
  for (const auto& [name, p] : net.named_parameters())
    server_of_cell.try_emplace(p.cell().get(),
                               owners[std::min(server_of_cell.size(), owners.size() - 1)]);
  const StateDict before = optimizer.state_dict();
  std::vector<Param> own;
  for (size_t i = 0; i < whole_.size(); ++i) {
    const Param& p = whole_[i];
    const auto at = server_of_cell.find(p.cell().get());
    const int holder = at == server_of_cell.end() ? 0 : at->second;
    server_by_name_[std::to_string(i)] = holder;
    if (!p.name().empty()) server_by_name_[p.name()] = holder;
    own.push_back(p);
    if (holder == server) continue;
    const Spec spec = p.cell()->spec();
    const std::vector<Dim> none(static_cast<size_t>(spec.shape.rank()), Dim(0));
    own.back() = Param(empty(none.empty() ? Shape{0} : Shape(none), spec.dtype).to(spec.device),
                       p.requires_grad());
    own.back().cell()->name = p.name();
  }
  optimizer.replace_params(own);
  optimizer.load_state_dict(own_of(before));
}

int OptimizerShare::server_of(const std::string& entry) const {
  const size_t dot = entry.rfind('.');
  const auto at = server_by_name_.find(entry.substr(0, dot == entry.npos ? 0 : dot));
  return at == server_by_name_.end() ? -1 : at->second;
}

StateDict OptimizerShare::entries_of(const StateDict& state, int server, bool common) const {
  StateDict some;
  for (const auto& [name, value] : state) {
    const int of = server_of(name);
    if (of == server || (common && of < 0)) some[name] = value;
  }
  return some;
}

StateDict OptimizerShare::own_of(const StateDict& whole) const {
  StateDict all = entries_of(whole, server_, true);
  for (const auto& [name, value] : optimizer_.state_dict())
    if (const int of = server_of(name); of >= 0 && of != server_) all[name] = value;
  return all;
}

void OptimizerShare::end() { optimizer_.replace_params(whole_); }

// ---- a server beside rank 0

ShareSide::ShareSide(const nn::Module& net, int servers, Engine& engine)
    : net_(net, servers, engine.rank()),
      engine_(engine),
      workers_(static_cast<size_t>(engine.size())) {
  take_values();
}

ShareSide::~ShareSide() {
  if (!ended_) engine_.abort(kServerFailed);
  const auto settle = [](Work& w) {
    try {
      w.wait();
    } catch (...) {}
  };
  for (Worker& w : workers_) settle(w.sent);
  for (auto& [key, result] : results_) settle(result.coming);
}

std::optional<ServerUpdate> ShareSide::next_update(OptimizerShare* optimizer) {
  engine_.set_step(version_ + 1);
  for (;;) {
    OrderMessage order;
    engine_.recv(bytes_of(order), 0, {kOrder, server_patience()}).wait();
    const bool of_state =
        order.kind == OrderMessage::send_state || order.kind == OrderMessage::take_state;
    TD_CHECK(!of_state || optimizer, Value,
             "rank 0 asks for the optimizer's state, and there is none\nAll servers call "
             "shard_optimizer().");
    switch (order.kind) {
      case OrderMessage::give:
        give(order);
        break;
      case OrderMessage::send_values:
        engine_.send(bytes_of(*values()), 0, {kValues}).wait();
        break;
      case OrderMessage::take_values:
        take_values();
        break;
      case OrderMessage::send_state:
        send_state(*optimizer);
        break;
      case OrderMessage::take_state:
        take_state(*optimizer, order.bytes);
        break;
      case OrderMessage::update:
        return take_update(order);
      default:
        finish();
        return {};
    }
  }
}

std::shared_ptr<std::vector<char>> ShareSide::values() {
  if (!values_) {
    values_ = std::make_shared<std::vector<char>>(static_cast<size_t>(net_.value_bytes()));
    net_.values_to(values_->data(), version_);
  }
  return values_;
}

void ShareSide::give(const OrderMessage& order) {
  const auto to = static_cast<int>(order.worker);
  Worker& w = workers_.at(static_cast<size_t>(to));
  w.sent.wait();
  w.values = values();
  w.sent = engine_.send(bytes_of(*w.values), to, {kValues});
  Result& r = results_[{order.task.update, order.task.part}];
  r.body.resize(static_cast<size_t>(net_.result_bytes()));
  r.coming = engine_.recv(bytes_of(r.body), to, {kGradients});
}

void ShareSide::take_values() {
  std::vector<char> own(static_cast<size_t>(net_.value_bytes()));
  engine_.recv(bytes_of(own), 0, {kValues, server_patience()}).wait();
  net_.values_from(own.data());
  values_ = nullptr;
}

void ShareSide::send_state(const OptimizerShare& optimizer) {
  std::vector<char> own = bytes_of_state(
      optimizer.entries_of(optimizer.optimizer().state_dict(), engine_.rank(), false));
  auto size = static_cast<int64_t>(own.size());
  Work first = engine_.send(bytes_of(size), 0, {kState});
  engine_.send(bytes_of(own), 0, {kState}).wait();
  first.wait();
}

void ShareSide::take_state(const OptimizerShare& optimizer, int64_t bytes) {
  std::vector<char> own(static_cast<size_t>(bytes));
  engine_.recv(bytes_of(own), 0, {kState}).wait();
  optimizer.optimizer().load_state_dict(optimizer.own_of(state_of_bytes(own)));
}

ServerUpdate ShareSide::take_update(const OrderMessage& order) {
  std::string note(static_cast<size_t>(order.bytes), ' ');
  if (!note.empty()) engine_.recv({note.data(), order.bytes, DType::u8}, 0, {kOrder}).wait();
  const int64_t update = order.task.update;
  std::vector<const char*> parts;
  for (int64_t k = 0; k < order.task.parts; ++k) {
    Result& r = results_.at({update, k});
    r.coming.wait();
    parts.push_back(r.body.data());
  }
  net_.results_from(parts);
  for (int64_t k = 0; k < order.task.parts; ++k) results_.erase({update, k});
  values_ = nullptr;  // the update comes before anything is given again
  ++version_;
  return {.update = update, .staleness = order.staleness, .notes = {std::move(note)}};
}

// Results of tasks that are dropped come, too.
void ShareSide::finish() {
  for (auto& [key, result] : results_) result.coming.wait();
  for (Worker& w : workers_) w.sent.wait();
  results_.clear();
  ended_ = true;
}

}  // namespace tandem::distributed
