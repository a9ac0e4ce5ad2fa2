// SPDX-License-Identifier: Apache-2.0
// Values of figures as people write them: 14,890; 1.54 GB; $12,346; 411 years.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tandem/plan/quantity.h"

namespace tandem::plan {
namespace {

constexpr double kDay = 86400, kYear = 365.25 * kDay;

std::string scaled(double v, const char* const* names, int n, double base) {
  int i = 0;
  while (i + 1 < n && std::abs(v) >= base) {
    v /= base;
    ++i;
  }
  return fmt::format("{:.{}f} {}", v,
                     i == 0 || std::abs(v) >= 100 ? (v == std::floor(v) ? 0 : 1)
                     : std::abs(v) >= 10          ? 1
                                                  : 2,
                     names[i]);
}

// A whole number with its thousands set apart: "14,890".
std::string grouped(double v) {
  std::string s = fmt::format("{:.0f}", v);
  const size_t sign = v < 0 ? 1 : 0;
  for (size_t at = s.size(); at > sign + 3;) s.insert(at -= 3, ",");
  return s;
}

// "1.61 x 10^-6"
std::string with_power(double v) {
  const std::string s = fmt::format("{:.2e}", v);
  const size_t e = s.find('e');
  if (e == s.npos) return s;  // no finite number
  return fmt::format("{} x 10^{}", s.substr(0, e), std::stoi(s.substr(e + 1)));
}

std::string plain_number(double v) {
  const double size = std::abs(v);
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return with_power(v);
  return size >= 9999.5 ? grouped(v) : fmt::format("{:.4g}", v);
}

// The limits are where a rounded number would reach the next unit.
std::string seconds_text(double v) {
  const double size = std::abs(v);
  if (v == 0) return "0 s";
  if (size < 0.9995e-3) return fmt::format("{:.3g} us", v * 1e6);
  if (size < 0.9995) return fmt::format("{:.3g} ms", v * 1e3);
  if (size < 120) return fmt::format("{:.3g} s", v);
  if (size < 7200) return fmt::format("{:.1f} min", v / 60);
  if (size < 2 * kDay) return fmt::format("{:.1f} h", v / 3600);
  if (size < 2 * kYear) return fmt::format("{:.1f} days", v / kDay);
  if (size < 99.95 * kYear) return fmt::format("{:.1f} years", v / kYear);
  if (size < 999999 * kYear) return grouped(v / kYear) + " years";
  return plain_number(std::round(v / kYear / 1e6)) + " million years";
}

std::string dollars_text(double v) {
  const double size = std::abs(v);
  if (v > 0 && v < 0.1) return fmt::format("${:.4f}", v);
  if (size < 9999.995) return fmt::format("${:.2f}", v);
  if (size < 1e8) return "$" + grouped(v);
  return size < 1e9 ? fmt::format("${:.1f}M", v / 1e6) : "$" + plain_number(v / 1e9) + "B";
}

}  // namespace

std::string show(double v, const std::string& unit) {
  static const char* const kBytes[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  static const char* const kRates[] = {"B/s", "KB/s", "MB/s", "GB/s", "TB/s"};
  static const char* const kBitRates[] = {"bit/s", "Kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
  static const char* const kFlops[] = {"FLOP",  "KFLOP", "MFLOP", "GFLOP",
                                       "TFLOP", "PFLOP", "EFLOP", "ZFLOP"};
  static const char* const kFlopRates[] = {"FLOP/s",  "KFLOP/s", "MFLOP/s",
                                           "GFLOP/s", "TFLOP/s", "PFLOP/s"};
  if (unit == "B") return scaled(v, kBytes, 6, 1000);
  if (unit == "B/s") return scaled(v, kRates, 5, 1000);
  if (unit == "bit/s") return scaled(v, kBitRates, 5, 1000);
  if (unit == "FLOP") return scaled(v, kFlops, 8, 1000);
  if (unit == "FLOP/s") return scaled(v, kFlopRates, 6, 1000);
  if (unit == "USD") return dollars_text(v);
  if (unit == "s") return seconds_text(v);
  return unit.empty() ? plain_number(v) : plain_number(v) + " " + unit;
}
std::string show(const Quantity& q) { return show(q.value, q.unit); }
std::string show_share(const Quantity& part, const Quantity& q) {
  return fmt::format("{:.1f} %", 100 * part.value / q.value);
}

}  // namespace tandem::plan
