#include "forms/batch.h"
#include "forms/folding.h"

namespace opdiff::forms {
namespace {

constexpr float kMomentum = 0.9f;

// running momentum + batch (1 - momentum).
std::string running(SideBuilder& side, const std::string& old, const std::string& batch) {
  const std::string kept = side.node("Mul", {old, side.number(static_cast<double>(kMomentum))});
  const std::string added = side.node("Mul", {batch, side.number(1 - static_cast<double>(kMomentum))});
  return side.node("Add", {kept, added});
}

void build(FormBuilder& form) {
  const Images images(form);
  const std::string x = form.input("x", images.shape());
  const std::string scale = form.parameter("scale", {images.c}, Values::positive);
  const std::string bias = form.parameter("bias", {images.c});
  const std::string mean = form.input("mean", {images.c});
  const std::string variance = form.input("variance", {images.c}, Values::positive);

  SideBuilder node = form.side("BatchNormalization with training_mode");
  const auto outputs =
      node.nodes("BatchNormalization", {x, scale, bias, mean, variance}, 3,
                 {{"epsilon", Normalisation::kEpsilon}, {"momentum", kMomentum}, {"training_mode", std::int64_t{1}}});
  for (const std::string& output : outputs) node.output(output);

  SideBuilder formula = form.side("formula with the batch's statistics");
  const std::vector<std::int64_t> axes{0, 2, 3};
  const std::string batch_mean = formula.reduce("ReduceMean", x, axes);
  const std::string centred = formula.node("Sub", {x, batch_mean});
  const std::string batch_variance = formula.reduce("ReduceMean", formula.node("Mul", {centred, centred}), axes);
  const std::string y = normalised(formula, x, batch_mean, batch_variance, by_channel(formula, scale, images.c),
                                   by_channel(formula, bias, images.c));
  const std::string flat_mean = formula.reshape(batch_mean, {images.c});
  const std::string flat_variance = formula.reshape(batch_variance, {images.c});
  formula.output(y);
  formula.output(running(formula, mean, flat_mean));
  formula.output(running(formula, variance, flat_variance));
}

bool has_two_elements(const Parameters& p) { return p.at("n") * p.at("h") * p.at("w") > 1; }

}  // namespace

const Form& bn_training_by_formula() {
  static const Form form = {
      .name = "bn-training-by-formula",
      .title = "BatchNormalization in training = its formula with the batch's statistics",
      .mathematics =
          "mean and variance are those of the batch, by channel over all other axes, the variance divided by the "
          "count n; y = (x - mean) / sqrt(variance + epsilon) * scale + bias, running = momentum running + (1 - "
          "momentum) batch. The gradient goes through the statistics. A formula that normalises the batch by the "
          "running statistics instead is a well-known mistake, and wrong.",
      .parameters = image_parameters(),
      .conditions = {{"two elements of each channel at least", &has_two_elements}},
      .regions = image_regions(),
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
