// SPDX-License-Identifier: Apache-2.0
// CartPole, MountainCar, MountainCarContinuous, Pendulum and Acrobot with the constants, order of
// operations and limits of Gymnasium's envs/classic_control. make_task() is the only entry point.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tandem/base/error.h"
#include "tandem/rl/env.h"

namespace tandem::rl {
namespace {

double between(PhiloxStream& random, double low, double high) {
  return low + (high - low) * uniform_f64(random.next_block().word64(0));
}

// A task whose state is a few doubles.
template <size_t N>
class StateTask : public Task {
 public:
  std::vector<double> state() const override { return {s_, s_ + N}; }
  void set_state(const std::vector<double>& state) override {
    TD_CHECK(state.size() == N, Shape, "{}: a state has {} numbers, got {}", name(), N,
             state.size());
    std::copy(state.begin(), state.end(), s_);
  }

 protected:
  void draw(PhiloxStream& random, double low, double high) {
    for (double& v : s_) v = between(random, low, high);
  }
  double s_[N] = {};
};

// Barto, Sutton, Anderson, "Neuronlike adaptive elements that can solve difficult learning control
// problems"; the equations are Florian's.
class CartPole : public StateTask<4> {
 public:
  const char* name() const override { return "CartPole-v1"; }
  Space observation_space() const override {
    const float x = static_cast<float>(2 * kX), theta = static_cast<float>(2 * kTheta),
                inf = HUGE_VALF;
    return {0, {-x, -inf, -theta, -inf}, {x, inf, theta, inf}};
  }
  Space action_space() const override { return {2, {}, {}}; }
  int64_t max_episode_steps() const override { return 500; }
  std::optional<double> reward_threshold() const override { return 475.0; }
  void reset(PhiloxStream& random) override { draw(random, -0.05, 0.05); }
  double step(const float* action, bool& terminated) override {
    constexpr double gravity = 9.8, pole = 0.1, total = 1.1, half = 0.5, tau = 0.02;
    constexpr double pole_moment = pole * half;
    double &x = s_[0], &v = s_[1], &theta = s_[2], &omega = s_[3];
    const double force = action[0] == 1 ? 10.0 : -10.0;
    const double cosine = std::cos(theta), sine = std::sin(theta);
    const double temp = (force + pole_moment * (omega * omega) * sine) / total;
    const double turn =
        (gravity * sine - cosine * temp) / (half * (4.0 / 3.0 - pole * (cosine * cosine) / total));
    const double push = temp - pole_moment * turn * cosine / total;
    x += tau * v;
    v += tau * push;
    theta += tau * omega;
    omega += tau * turn;
    terminated = x < -kX || x > kX || theta < -kTheta || theta > kTheta;
    return 1.0;
  }
  void observe(float* obs) const override { std::copy(s_, s_ + 4, obs); }

 private:
  static constexpr double kX = 2.4, kTheta = 12 * 2 * std::numbers::pi / 360;
};

// Moore's mountain car. The two variants differ in their actions, reward and goal.
class MountainCar : public StateTask<2> {
 public:
  const char* name() const override { return "MountainCar-v0"; }
  Space observation_space() const override { return {0, {-1.2F, -0.07F}, {0.6F, 0.07F}}; }
  Space action_space() const override { return {3, {}, {}}; }
  int64_t max_episode_steps() const override { return 200; }
  std::optional<double> reward_threshold() const override { return -110.0; }
  void reset(PhiloxStream& random) override {
    s_[0] = between(random, -0.6, -0.4);
    s_[1] = 0;
  }
  double step(const float* action, bool& terminated) override {
    move((static_cast<double>(action[0]) - 1) * 0.001);
    terminated = s_[0] >= 0.5 && s_[1] >= 0;
    return -1.0;
  }
  void observe(float* obs) const override { std::copy(s_, s_ + 2, obs); }

 protected:
  void move(double force) {
    double &position = s_[0], &velocity = s_[1];
    velocity = std::clamp(velocity + force - 0.0025 * std::cos(3 * position), -0.07, 0.07);
    position = std::clamp(position + velocity, -1.2, 0.6);
    if (position == -1.2 && velocity < 0) velocity = 0;
  }
};

class MountainCarContinuous : public MountainCar {
 public:
  const char* name() const override { return "MountainCarContinuous-v0"; }
  Space action_space() const override { return {0, {-1.0F}, {1.0F}}; }
  int64_t max_episode_steps() const override { return 999; }
  std::optional<double> reward_threshold() const override { return 90.0; }
  double step(const float* action, bool& terminated) override {
    const double a = action[0];
    move(std::clamp(a, -1.0, 1.0) * 0.0015);
    terminated = s_[0] >= 0.45 && s_[1] >= 0;
    for (double& v : s_) v = static_cast<float>(v);  // Gymnasium keeps this state as float32
    return (terminated ? 100.0 : 0.0) - a * a * 0.1;
  }
};

class Pendulum : public StateTask<2> {
 public:
  const char* name() const override { return "Pendulum-v1"; }
  Space observation_space() const override { return {0, {-1, -1, -8}, {1, 1, 8}}; }
  Space action_space() const override { return {0, {-2.0F}, {2.0F}}; }
  int64_t max_episode_steps() const override { return 200; }
  void reset(PhiloxStream& random) override {
    s_[0] = between(random, -std::numbers::pi, std::numbers::pi);
    s_[1] = between(random, -1.0, 1.0);
  }
  double step(const float* action, bool& terminated) override {
    double &theta = s_[0], &omega = s_[1];
    const double u = std::clamp(static_cast<double>(action[0]), -2.0, 2.0);
    double angle = std::fmod(theta + std::numbers::pi, 2 * std::numbers::pi);  // to [-pi, pi)
    if (angle < 0) angle += 2 * std::numbers::pi;
    angle -= std::numbers::pi;
    const double cost = angle * angle + 0.1 * (omega * omega) + 0.001 * (u * u);
    omega = std::clamp(omega + (15.0 * std::sin(theta) + 3.0 * u) * 0.05, -8.0, 8.0);
    theta += omega * 0.05;
    terminated = false;
    return -cost;
  }
  void observe(float* obs) const override {
    obs[0] = static_cast<float>(std::cos(s_[0]));
    obs[1] = static_cast<float>(std::sin(s_[0]));
    obs[2] = static_cast<float>(s_[1]);
  }
};

// Sutton's acrobot: two links, torque on the joint between them, one Runge-Kutta step of 0.2 s.
class Acrobot : public StateTask<4> {
 public:
  const char* name() const override { return "Acrobot-v1"; }
  Space observation_space() const override {
    const auto a = static_cast<float>(4 * std::numbers::pi),
               b = static_cast<float>(9 * std::numbers::pi);
    return {0, {-1, -1, -1, -1, -a, -b}, {1, 1, 1, 1, a, b}};
  }
  Space action_space() const override { return {3, {}, {}}; }
  int64_t max_episode_steps() const override { return 500; }
  std::optional<double> reward_threshold() const override { return -100.0; }
  void reset(PhiloxStream& random) override {
    draw(random, -0.1, 0.1);
    for (double& v : s_) v = static_cast<float>(v);
  }
  double step(const float* action, bool& terminated) override {
    constexpr double dt = 0.2;
    const double torque = static_cast<double>(action[0]) - 1;
    const State y{s_[0], s_[1], s_[2], s_[3]};
    const State k1 = derivative(y, torque);
    const State k2 = derivative(moved(y, k1, dt / 2), torque);
    const State k3 = derivative(moved(y, k2, dt / 2), torque);
    const State k4 = derivative(moved(y, k3, dt), torque);
    for (size_t i = 0; i < 4; ++i)
      s_[i] = y.v[i] + dt / 6 * (k1.v[i] + 2 * k2.v[i] + 2 * k3.v[i] + k4.v[i]);
    s_[0] = wrapped(s_[0]);
    s_[1] = wrapped(s_[1]);
    s_[2] = std::clamp(s_[2], -4 * std::numbers::pi, 4 * std::numbers::pi);
    s_[3] = std::clamp(s_[3], -9 * std::numbers::pi, 9 * std::numbers::pi);
    terminated = -std::cos(s_[0]) - std::cos(s_[1] + s_[0]) > 1.0;
    return terminated ? 0.0 : -1.0;
  }
  void observe(float* obs) const override {
    for (size_t i = 0; i < 2; ++i) {
      obs[2 * i] = static_cast<float>(std::cos(s_[i]));
      obs[2 * i + 1] = static_cast<float>(std::sin(s_[i]));
      obs[4 + i] = static_cast<float>(s_[2 + i]);
    }
  }

 private:
  struct State {
    double v[4];
  };
  static State moved(const State& y, const State& k, double by) {
    State out;
    for (size_t i = 0; i < 4; ++i) out.v[i] = y.v[i] + by * k.v[i];
    return out;
  }
  static double wrapped(double a) {
    while (a > std::numbers::pi) a -= 2 * std::numbers::pi;
    while (a < -std::numbers::pi) a += 2 * std::numbers::pi;
    return a;
  }
  // Masses, lengths and moments are 1, the centres of mass are at 0.5; the book's equations.
  static State derivative(const State& s, double torque) {
    constexpr double g = 9.8, centre = 0.5;
    const double c2 = std::cos(s.v[1]), s2 = std::sin(s.v[1]), w1 = s.v[2], w2 = s.v[3];
    const double d1 = centre * centre + (1 + centre * centre + 2 * centre * c2) + 2;
    const double d2 = centre * centre + centre * c2 + 1;
    const double phi2 = centre * g * std::cos(s.v[0] + s.v[1] - std::numbers::pi / 2);
    const double phi1 = -centre * w2 * w2 * s2 - 2 * centre * w2 * w1 * s2 +
                        (centre + 1) * g * std::cos(s.v[0] - std::numbers::pi / 2) + phi2;
    const double a2 = (torque + d2 / d1 * phi1 - centre * w1 * w1 * s2 - phi2) /
                      (centre * centre + 1 - d2 * d2 / d1);
    const double a1 = -(d2 * a2 + phi1) / d1;
    return {{w1, w2, a1, a2}};
  }
};

template <class T>
std::unique_ptr<Task> make() {
  return std::make_unique<T>();
}
struct Entry {
  const char* name;
  std::unique_ptr<Task> (*make)();
};
constexpr Entry kTasks[] = {
    {"CartPole-v1", make<CartPole>},
    {"MountainCar-v0", make<MountainCar>},
    {"MountainCarContinuous-v0", make<MountainCarContinuous>},
    {"Pendulum-v1", make<Pendulum>},
    {"Acrobot-v1", make<Acrobot>},
};

}  // namespace

std::unique_ptr<Task> make_task(std::string_view name) {
  std::string names;
  for (const Entry& e : kTasks) {
    if (name == e.name) return e.make();
    names += std::string(names.empty() ? "" : ", ") + e.name;
  }
  TD_FAIL(Value, "there is no environment '{}'\nThere are {}.", name, names);
}

}  // namespace tandem::rl
