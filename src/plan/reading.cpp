#include "plan/reading.h"

#include <algorithm>
#include <cmath>

namespace opdiff {
namespace {

void mark_wrong_shape(Reading* reading, const std::string& name, std::string reason) {
  reading->wrong = true;
  reading->wrong_shape = true;
  reading->worst_output = name;
  reading->reason = std::move(reason);
}

}  // namespace

Reading read_outputs(const Outcome& outcome, const TensorMap& expected, const FloorSource& floor,
                     std::map<std::string, FloorComparison>* details) {
  Reading reading;
  reading.outcome = outcome.kind;
  reading.reason = outcome.reason;
  if (!outcome.ok()) return reading;
  for (const auto& [name, reference] : expected) {
    const auto found = outcome.outputs.find(name);
    if (found == outcome.outputs.end()) {
      reading.outcome = OutcomeKind::error;
      reading.reason = fmt::format("the run did not return the output '{}'", name);
      return reading;
    }
    const Tensor& got = found->second;
    if (got.dtype() != reference.dtype() || got.shape() != reference.shape()) {
      mark_wrong_shape(
          &reading, name,
          fmt::format("output '{}' is {}, the reference says {}", name, to_string(TensorType{got.dtype(), got.shape()}),
                      to_string(TensorType{reference.dtype(), reference.shape()})));
      continue;
    }
    FloorComparison comparison;
    if (!got.bit_equal(reference)) {
      const Expected<const Floor*> floors = floor();
      const std::vector<double>* of_output = nullptr;
      if (floors) {
        const auto entry = (*floors)->find(name);
        if (entry != (*floors)->end()) of_output = &entry->second;
      }
      if (of_output == nullptr) {
        reading.reason = fmt::format("output '{}' could not be judged: {}", name,
                                     floors ? "it has no noise floor" : floors.error().message);
        continue;
      }
      comparison = compare_with_floor(got, reference, *of_output);
    }
    if (reading.worst_output.empty() || (!reading.wrong_shape && comparison.max > reading.max)) {
      reading.worst_output = name;
    }
    reading.rms = std::max(reading.rms, comparison.rms);
    reading.max = std::max(reading.max, comparison.max);
    reading.non_finite_differs |= comparison.non_finite_differs;
    reading.wrong |= comparison.suspect || comparison.non_finite_differs;
    if (details != nullptr) (*details)[name] = comparison;
  }
  return reading;
}

std::optional<ClassifierResult> classify(const Tensor& got, const Tensor& expected, const std::vector<double>* floor,
                                         const Tensor* labels) {
  const Shape& shape = expected.shape();
  if (!is_float(expected.dtype()) || shape.size() != 2 || got.shape() != shape || shape[1] < 2) return std::nullopt;
  ClassifierResult result;
  result.rows = shape[0];
  if (labels != nullptr && labels->shape() == Shape{result.rows} && is_integer(labels->dtype())) {
    result.right = result.reference_right = 0;
  }
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    const std::int64_t begin = row * shape[1];
    std::int64_t best = begin, second = -1, got_best = begin;
    for (std::int64_t i = begin + 1; i < begin + shape[1]; ++i) {
      if (expected.at(i) > expected.at(best)) {
        second = best;
        best = i;
      } else if (second < 0 || expected.at(i) > expected.at(second)) {
        second = i;
      }
      if (got.at(i) > got.at(got_best)) got_best = i;
    }
    if (result.right) {
      const std::int64_t label = labels->int_at(row);
      *result.right += got_best - begin == label ? 1 : 0;
      *result.reference_right += best - begin == label ? 1 : 0;
    }
    const double margin = expected.at(best) - expected.at(second);
    if (row == 0 || margin < result.smallest_margin) result.smallest_margin = margin;
    if (got_best == best) continue;
    ++result.flips;
    // The winner fell and the other rose, each by at most the largest error that is still not suspect (10 s).
    const double lead = expected.at(best) - expected.at(got_best);
    const auto noise = [&](std::int64_t i) {
      return floor == nullptr ? 0.0 : 10 * (*floor)[static_cast<std::size_t>(i)];
    };
    if (lead <= noise(best) + noise(got_best)) ++result.flips_inside_noise;
  }
  return result;
}

}  // namespace opdiff
