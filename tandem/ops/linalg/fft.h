// SPDX-License-Identifier: Apache-2.0
// Fourier transforms with torch.fft's names and arguments. There is no complex dtype: a complex
// tensor is a real one whose last dimension is (real, imaginary), as from torch.view_as_real; `dim`
// counts the dimensions before that one. f32 and f64; any length; derivatives of every order.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tandem/graph/apply.h"

namespace tandem::fft {

/// norm: "backward" (1/n on the inverse, the default), "ortho" (1/sqrt(n) on both), "forward". n:
/// the length to which the input is first truncated or zero-padded.

/// Complex [..., 2] to complex.
TD_API Tensor fft(const Tensor& x, std::optional<int64_t> n = {}, int64_t dim = -1,
                  std::string_view norm = "backward", SourceLocation loc = SourceLocation::here());
TD_API Tensor ifft(const Tensor& x, std::optional<int64_t> n = {}, int64_t dim = -1,
                   std::string_view norm = "backward", SourceLocation loc = SourceLocation::here());
/// Real [..., n] to the first n / 2 + 1 frequencies [..., n / 2 + 1, 2].
TD_API Tensor rfft(const Tensor& x, std::optional<int64_t> n = {}, int64_t dim = -1,
                   std::string_view norm = "backward", SourceLocation loc = SourceLocation::here());
/// The inverse: n is 2 (frequencies - 1) unless given. The other half is taken as the conjugate.
TD_API Tensor irfft(const Tensor& x, std::optional<int64_t> n = {}, int64_t dim = -1,
                    std::string_view norm = "backward",
                    SourceLocation loc = SourceLocation::here());
/// Over several dims in sequence; by default all of them; s: their lengths.
TD_API Tensor fftn(const Tensor& x, IntList s = {}, IntList dim = {},
                   std::string_view norm = "backward", SourceLocation loc = SourceLocation::here());
TD_API Tensor ifftn(const Tensor& x, IntList s = {}, IntList dim = {},
                    std::string_view norm = "backward",
                    SourceLocation loc = SourceLocation::here());
TD_API Tensor fft2(const Tensor& x, IntList s = {}, IntList dim = {-2, -1},
                   std::string_view norm = "backward", SourceLocation loc = SourceLocation::here());
TD_API Tensor ifft2(const Tensor& x, IntList s = {}, IntList dim = {-2, -1},
                    std::string_view norm = "backward",
                    SourceLocation loc = SourceLocation::here());
/// The last of the dims is the one that is halved.
TD_API Tensor rfftn(const Tensor& x, IntList s = {}, IntList dim = {},
                    std::string_view norm = "backward",
                    SourceLocation loc = SourceLocation::here());
TD_API Tensor irfftn(const Tensor& x, IntList s = {}, IntList dim = {},
                     std::string_view norm = "backward",
                     SourceLocation loc = SourceLocation::here());
TD_API Tensor rfft2(const Tensor& x, IntList s = {}, IntList dim = {-2, -1},
                    std::string_view norm = "backward",
                    SourceLocation loc = SourceLocation::here());
TD_API Tensor irfft2(const Tensor& x, IntList s = {}, IntList dim = {-2, -1},
                     std::string_view norm = "backward",
                     SourceLocation loc = SourceLocation::here());
/// Of a signal whose spectrum is real: the transform of the half of it that is not redundant,
/// complex [..., n / 2 + 1, 2] to real [..., n]; n is 2 (entries - 1) unless given. ihfft is the
/// inverse. With several dims the last one is halved.
TD_API Tensor hfft(const Tensor& x, std::optional<int64_t> n = {}, int64_t dim = -1,
                   std::string_view norm = "backward", SourceLocation loc = SourceLocation::here());
TD_API Tensor ihfft(const Tensor& x, std::optional<int64_t> n = {}, int64_t dim = -1,
                    std::string_view norm = "backward",
                    SourceLocation loc = SourceLocation::here());
TD_API Tensor hfftn(const Tensor& x, IntList s = {}, IntList dim = {},
                    std::string_view norm = "backward",
                    SourceLocation loc = SourceLocation::here());
TD_API Tensor ihfftn(const Tensor& x, IntList s = {}, IntList dim = {},
                     std::string_view norm = "backward",
                     SourceLocation loc = SourceLocation::here());
TD_API Tensor hfft2(const Tensor& x, IntList s = {}, IntList dim = {-2, -1},
                    std::string_view norm = "backward",
                    SourceLocation loc = SourceLocation::here());
TD_API Tensor ihfft2(const Tensor& x, IntList s = {}, IntList dim = {-2, -1},
                     std::string_view norm = "backward",
                     SourceLocation loc = SourceLocation::here());
/// Frequencies of the entries of fft and rfft of length n for samples d apart.
TD_API Tensor fftfreq(int64_t n, double d = 1, DType dtype = DType::f32,
                      SourceLocation loc = SourceLocation::here());
TD_API Tensor rfftfreq(int64_t n, double d = 1, DType dtype = DType::f32,
                       SourceLocation loc = SourceLocation::here());
/// Moves frequency 0 to the middle of the dims (by default all of them), and back. These take any
/// tensor: name the dims of a complex one.
TD_API Tensor fftshift(const Tensor& x, IntList dim = {},
                       SourceLocation loc = SourceLocation::here());
TD_API Tensor ifftshift(const Tensor& x, IntList dim = {},
                        SourceLocation loc = SourceLocation::here());

// ---- rows
struct FftAttrs {
  int64_t dim = 0;
  bool inverse = false;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("inverse", inverse);
  }
};
struct RealFftAttrs {
  int64_t dim = 0;
  int64_t length = 0;  ///< on the real side
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("length", length);
  }
};

}  // namespace tandem::fft

namespace tandem {

// ---- complex numbers as a last dimension of 2
// (real, imaginary) side by side.
TD_API Tensor make_complex(const Tensor& real, const Tensor& imag,
                           SourceLocation loc = SourceLocation::here());
TD_API Tensor complex_real(const Tensor& x, SourceLocation loc = SourceLocation::here());
TD_API Tensor complex_imag(const Tensor& x, SourceLocation loc = SourceLocation::here());
TD_API Tensor complex_mul(const Tensor& x, const Tensor& y,
                          SourceLocation loc = SourceLocation::here());
TD_API Tensor complex_conj(const Tensor& x, SourceLocation loc = SourceLocation::here());
/// Magnitude (gradient 0 at 0) and angle.
TD_API Tensor complex_abs(const Tensor& x, SourceLocation loc = SourceLocation::here());
TD_API Tensor complex_angle(const Tensor& x, SourceLocation loc = SourceLocation::here());

// ---- short-time transforms
struct StftOptions {
  std::optional<int64_t> hop_length;  ///< default n_fft / 4
  std::optional<int64_t> win_length;  ///< default n_fft
  Tensor window;                      ///< [win_length], ones by default
  bool center = true;                 ///< frame t is centred at t * hop_length
  std::string_view pad_mode = "reflect";
  bool normalized = false;  ///< divided by sqrt(n_fft)
  bool onesided = true;
};
/// x [time] or [batch, time] to [..., frequencies, frames, 2].
TD_API Tensor stft(const Tensor& x, int64_t n_fft, const StftOptions& options = {},
                   SourceLocation loc = SourceLocation::here());
/// The signal whose frames are nearest to x; `length` truncates it. Throws Value where the windows
/// leave samples without weight.
TD_API Tensor istft(const Tensor& x, int64_t n_fft, const StftOptions& options = {},
                    std::optional<int64_t> length = {},
                    SourceLocation loc = SourceLocation::here());

/// Windows of n samples; periodic: one period of n, for use with stft.
TD_API Tensor hann_window(int64_t n, bool periodic = true, DType dtype = DType::f32,
                          SourceLocation loc = SourceLocation::here());
TD_API Tensor hamming_window(int64_t n, bool periodic = true, double alpha = 0.54,
                             double beta = 0.46, DType dtype = DType::f32,
                             SourceLocation loc = SourceLocation::here());
TD_API Tensor blackman_window(int64_t n, bool periodic = true, DType dtype = DType::f32,
                              SourceLocation loc = SourceLocation::here());
TD_API Tensor bartlett_window(int64_t n, bool periodic = true, DType dtype = DType::f32,
                              SourceLocation loc = SourceLocation::here());
TD_API Tensor kaiser_window(int64_t n, bool periodic = true, double beta = 12,
                            DType dtype = DType::f32, SourceLocation loc = SourceLocation::here());

namespace op {
/// fft: complex [..., 2] along a dim, unscaled. rfft: real [..., n, ...] to the frequencies 0 .. n
/// / 2, complex; irfft: back to n numbers, with the upper frequencies taken as conjugates.
extern TD_API const OpDef fft, rfft, irfft;
}  // namespace op
/// The rows of this family.
TD_API std::span<const OpDef* const> fft_rows();

}  // namespace tandem
