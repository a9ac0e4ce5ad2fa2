// SPDX-License-Identifier: Apache-2.0
// Scalings of rotary positions: linear, Llama 3, YaRN (Peng et al. 2023), LongRoPE (Ding et al.
// 2024).
#include "tandem/models/pretrained/rope_internal.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tandem/ops/ops.h"

namespace tandem::models::detail {
namespace {

class RopeReader {
 public:
  RopeReader(const ModelConfig& c, const RopeSizes& s, const char* layers, bool plain)
      : c_(c), s_(s) {
    const io::Json* scaling = c.object("rope_scaling");
    rope_ = c.object("rope_parameters");
    if (!rope_) rope_ = scaling;
    if (const io::Json* own = rope_ ? rope_->find(layers) : nullptr; own && own->as_object()) {
      rope_ = own;
    } else if (plain) {
      rope_ = nullptr;
    }
    c.number("original_max_position_embeddings", 0);  // of scalings alone
    theta_ = number("rope_theta", plain ? s.theta : c.number("rope_theta", s.theta));
    if (!(theta_ > 0)) c.fail("'rope_theta' must be above 0");
    const double part = number("partial_rotary_factor", c.number("partial_rotary_factor", 1));
    if (!(part > 0 && part <= 1)) c.fail("'partial_rotary_factor' must lie in (0, 1]");
    size_ = static_cast<int64_t>(static_cast<double>(s.head_dim) * part);
    if (size_ < 2 || size_ % 2 != 0)
      c.fail(
          fmt::format("rope turns {} elements of each head, 'head_dim' is {}", size_, s.head_dim));
  }
  Rope read() {
    Rope r;
    for (int64_t i = 0; i < size_ / 2; ++i)
      r.frequencies.push_back(1.0F /
                              std::pow(static_cast<float>(theta_),
                                       static_cast<float>(2 * i) / static_cast<float>(size_)));
    std::string type = "default";
    if (rope_)
      for (const char* key : {"type", "rope_type"})
        if (const io::Json* t = rope_->find(key)) {
          if (!t->as_string()) c_.fail("the type of rope must be a string");
          type = *t->as_string();
        }
    // Phi-3's first files say "su" and "yarn".
    if (type == "su" || (type == "yarn" && c_.model_type() == "phi3")) type = "longrope";
    if (type == "default") return r;
    if (type == "linear") {
      const double factor = factor_of();
      for (float& f : r.frequencies) f /= static_cast<float>(factor);
    } else if (type == "llama3") {
      llama3(r, factor_of());
    } else if (type == "yarn") {
      yarn(r, factor_of());
    } else if (type == "longrope") {
      longrope(r);
    } else {
      c_.fail("rope of type '" + type +
              "' is not supported (default, linear, llama3, yarn, longrope)");
    }
    return r;
  }

 private:
  double number(const char* key, double otherwise) const {
    const io::Json* v = rope_ ? rope_->find(key) : nullptr;
    if (!v || v->is_null()) return otherwise;
    if (v->as_int()) return static_cast<double>(*v->as_int());
    if (!v->as_double()) c_.fail(std::string("'") + key + "' of rope must be a number");
    return *v->as_double();
  }
  double factor_of() const {
    const double factor = number("factor", 0);
    if (!(factor >= 1)) c_.fail("'factor' of rope must be at least 1");
    return factor;
  }
  double old_length(double otherwise) const {
    const double old = c_.number("original_max_position_embeddings",
                                 number("original_max_position_embeddings", otherwise));
    if (!(old > 0)) c_.fail("'original_max_position_embeddings' must be above 0");
    return old;
  }
  // Long wavelengths are stretched, short ones kept, those between are interpolated.
  void llama3(Rope& r, double factor) const {
    const double low = number("low_freq_factor", 1), high = number("high_freq_factor", 4);
    const double old = old_length(8192);
    if (!(high > low) || !(low > 0)) c_.fail("the factors of rope contradict each other");
    for (float& f : r.frequencies) {
      const double wave = 2 * std::numbers::pi / f;
      if (wave > old / low) {
        f = static_cast<float>(f / factor);
      } else if (wave >= old / high) {
        const double smooth = (old / wave - low) / (high - low);
        f = static_cast<float>((1 - smooth) * f / factor + smooth * f);
      }
    }
  }
  // A ramp between two dimensions, and a temperature.
  void yarn(Rope& r, double factor) const {
    const double fast = number("beta_fast", 32), slow = number("beta_slow", 1);
    const double old = old_length(static_cast<double>(s_.positions));
    const auto dim = static_cast<double>(size_);
    const auto at = [&](double turns) {
      return dim * std::log(old / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta_));
    };
    const io::Json* truncate = rope_->find("truncate");
    const bool whole = !truncate || !truncate->as_bool() || *truncate->as_bool();
    const double low = std::max(whole ? std::floor(at(fast)) : at(fast), 0.0);
    double high = std::min(whole ? std::ceil(at(slow)) : at(slow), dim - 1);
    if (low == high) high += 0.001;
    for (size_t i = 0; i < r.frequencies.size(); ++i) {
      const double ramp =
          std::min(std::max((static_cast<double>(i) - low) / (high - low), 0.0), 1.0);
      const double f = r.frequencies[i];
      r.frequencies[i] = static_cast<float>(f / factor * ramp + f * (1 - ramp));
    }
    const auto scale = [&](double m) { return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1; };
    const double part = number("mscale", 0), all = number("mscale_all_dim", 0);
    r.factor =
        number("attention_factor", part != 0 && all != 0 ? scale(part) / scale(all) : scale(1));
  }
  // A divisor for each frequency, of which there are two sets: for short and for long texts.
  void longrope(Rope& r) const {
    const double old = old_length(static_cast<double>(s_.positions));
    const double factor = number("factor", static_cast<double>(s_.positions) / old);
    r.longest = static_cast<int64_t>(old);
    r.factor = number("attention_factor",
                      factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(old)));
    r.beyond = r.frequencies;
    divide(r.frequencies, "short_factor");
    divide(r.beyond, "long_factor");
  }
  void divide(std::vector<float>& frequencies, const char* key) const {
    const io::Json* v = rope_->find(key);
    if (!v || !v->as_array() || v->as_array()->size() != frequencies.size())
      c_.fail(fmt::format("'{}' of rope must be {} numbers", key, frequencies.size()));
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const double d = io::number_of(&(*v->as_array())[i]);
      if (!(d > 0)) c_.fail(fmt::format("'{}' of rope must be numbers above 0", key));
      frequencies[i] /= static_cast<float>(d);
    }
  }
  const ModelConfig& c_;
  const RopeSizes& s_;
  const io::Json* rope_;
  double theta_;
  int64_t size_;
};

}  // namespace

Turn Rope::at(const Tensor& positions) const {
  const auto half = static_cast<int64_t>(frequencies.size());
  Tensor each = tensor(frequencies).reshape({1, 1, 1, half});
  if (!beyond.empty())
    each = where(amax(positions) >= longest, tensor(beyond).reshape({1, 1, 1, half}), each);
  const Tensor angles =
      positions.to(DType::f32).reshape({positions.shape(0), 1, positions.shape(1), 1}) * each;
  const Tensor both = cat({angles, angles}, 3);
  Turn t{both.cos(), both.sin()};
  if (factor != 1) t = {t.cos * factor, t.sin * factor};
  return t;
}

Rope read_rope(const ModelConfig& c, const RopeSizes& sizes, const char* layers, bool plain) {
  return RopeReader(c, sizes, layers, plain).read();
}

}  // namespace tandem::models::detail
