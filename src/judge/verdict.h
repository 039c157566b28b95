// Where on the ladder an outcome stands (docs/numerics.md, section 3). Plain data; made by judge/judge.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"

namespace opdiff {

// The rungs, best first.
enum class Rung : std::uint8_t {
  exact,
  rounding,
  algorithm,
  approximation,
  flush_to_zero,
  precision,
  convention,
  unlikely,
  defect,
};
inline constexpr int kRungCount = 9;
std::string_view to_string(Rung rung);  // "exact", ..., "flush-to-zero", ...
std::optional<Rung> parse_rung(std::string_view name);

// The element that is worst: impossible ones first, then the largest |z|.
struct WorstElement {
  std::int64_t index = -1;  // flat; -1 when the tensor is empty
  Shape coordinates;
  double got = 0;
  double centre = 0;
  double radius = 0;
  double deviation = 0;
};

// What people are used to. Relative errors are |y - c| / |c| over elements with c != 0.
struct ClassicFigures {
  double max_absolute = 0, mean_absolute = 0;
  double max_relative = 0, mean_relative = 0;
  double max_ulp = 0;
  double rmse = 0, psnr = 0, cosine = 1;
  double share_beyond_1e3 = 0, share_beyond_1e4 = 0;  // relative error above 1e-3, 1e-4
};

// One tensor's verdict.
struct Verdict {
  Rung rung = Rung::exact;
  bool unproven = false;  // some element could be neither explained nor refuted, or there is no reference
  std::string profile;    // "inner-f32", "inner-storage", ...
  std::string
      explanation;    // formula, algorithm, format, convention or odds, by name: "winograd F(2,3)", "bf16 operands"
  bool warn = false;  // an `algorithm` whose error is far above pairwise summation
  double excess = 0;  // largest error / radius of the `rounding` rung
  double z_rms = 0, z_mean = 0, z_max = 0;  // of the rung reported; z_max is the largest |z|
  double z_rms_limit = 0, z_max_limit = 0;
  double odds = 1;  // probability of what was seen, at most, when `unlikely`
  std::int64_t elements = 0;
  std::array<std::int64_t, kRungCount> counts{};  // elements on each rung
  std::int64_t unproven_elements = 0;
  std::int64_t unspecified_elements = 0;
  WorstElement worst;
  ClassicFigures figures;
  std::string note;  // wrong shape, wrong dtype, non-finite values: one line

  bool failed() const { return rung == Rung::defect; }
  bool suspicious() const { return rung >= Rung::unlikely; }
};

}  // namespace opdiff
