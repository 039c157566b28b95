// One tensor on its way down the ladder: which elements are explained so far, by which rung, and how far off each is.
#pragma once

#include <string>
#include <vector>

#include "judge/plausible.h"
#include "judge/verdict.h"
#include "ops/op.h"

namespace opdiff {

class Attempt {
 public:
  Attempt(const MetaOperator& op, const Call& call, int output, const Tensor& got, const Tensor& expected);

  // Tries a yardstick: elements that it explains and no earlier one did go on `rung`. True when the whole tensor is
  // then possible and plausible; `profile` and `explanation` are then the verdict's.
  // `radius_proves` is false where the radius is too wide to say anything alone: |z| must be within its limit, too.
  bool explain(Rung rung, const EnclosedTensor& yardstick, const std::string& profile, const std::string& explanation,
               bool radius_proves = true);
  // Elements that no yardstick explained and that `accepts` names; true when nothing else is left.
  bool accept_remaining(Rung rung, const std::vector<bool>& accepts, const std::string& explanation);
  // Puts the tensor on `rung` as it stands (an order of summation explained what is left).
  void settle(Rung rung, const std::string& explanation);

  // Median |z| under the last `rounding` yardstick over elements with a deviation: does the tensor as a whole stand
  // out?
  double rounding_median() const;
  // Of the elements whose honest results under `yardstick` are spread over many numbers of the storage format: the
  // share that is correctly rounded all the same. 0 where there are none.
  double share_too_good(const EnclosedTensor& yardstick) const;
  // The share of elements that `yardstick` explains by itself.
  double share_explained(const EnclosedTensor& yardstick) const;
  // Medians, in deviations of `yardstick`, of the errors and of the deviations of honest rounding (elements that have
  // both).
  struct Medians {
    double error = 0, rounding = 0;
  };
  Medians medians_in(const EnclosedTensor& yardstick) const;
  // Flat indices of elements that stand out from the last `rounding` yardstick, worst first.
  std::vector<std::int64_t> standing_out() const;
  bool all_possible() const;
  const std::vector<double>& error() const { return error_; }
  const std::vector<double>& rounding_deviation() const { return rounding_deviation_; }
  bool done() const { return done_; }
  int output() const { return output_; }
  const Tensor& got() const { return got_; }
  const std::string& last_profile() const { return profile_; }

  Verdict verdict();

 private:
  Plausibility score(const std::vector<double>& z, Scoring scoring) const;
  void finish(Rung rung, const std::string& explanation);
  void note_worst(const EnclosedTensor& yardstick);

  const MetaOperator& op_;
  const Call& call_;
  int output_;
  const Tensor& got_;
  std::vector<double> y_, centre_, error_;
  std::vector<char> possible_;  // under some yardstick so far
  std::vector<char> passed_;    // possible and |z| within the limit, on rung_[i]
  std::vector<char> counted_;   // has a deviation
  std::vector<char> unproven_;
  std::vector<char> correctly_rounded_;
  std::vector<Rung> rung_;
  std::vector<double> z_;  // under the yardstick it passed, else the best so far
  double max_limit_;
  bool done_ = false, first_ = true;
  std::string profile_;
  Plausibility last_;
  bool scored_ = true;  // last_ holds the full figures of z_
  Verdict verdict_;
  std::vector<double> rounding_radius_, rounding_deviation_, rounding_z_;
};

}  // namespace opdiff
