#include "train/curves.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/file.h"
#include "workers/gnuplot.h"

namespace opdiff {
namespace fs = std::filesystem;
namespace {

constexpr const char* kHeader = "step,loss,accuracy,test_loss,test_accuracy,rows,test_rows";
constexpr std::uint64_t kMaximumCsv = std::uint64_t{1} << 30;
constexpr std::size_t kPlotted = 200;  // means of the loss curve: about one each four pixels

Tensor column(const std::vector<double>& values) {
  return Tensor::from_doubles(DType::f64, {static_cast<std::int64_t>(values.size())}, values);
}

std::string share(std::int64_t right, std::int64_t rows) {
  return right < 0 || rows == 0 ? "" : fmt::format("{}", static_cast<double>(right) / static_cast<double>(rows));
}

}  // namespace

TensorMap curves_to_tensors(const Curves& curves) {
  std::vector<double> steps, tests;
  for (const StepPoint& p : curves.steps)
    steps.insert(steps.end(), {p.loss, static_cast<double>(p.right), static_cast<double>(p.rows)});
  for (const TestPoint& p : curves.tests)
    tests.insert(tests.end(),
                 {static_cast<double>(p.step), p.loss, static_cast<double>(p.right), static_cast<double>(p.rows)});
  return {{"curves/steps", column(steps)}, {"curves/tests", column(tests)}};
}

Expected<Curves> curves_from_tensors(const TensorMap& tensors) {
  const auto steps = tensors.find("curves/steps"), tests = tensors.find("curves/tests");
  if (steps == tensors.end() || tests == tensors.end() || steps->second.size() % 3 != 0 ||
      tests->second.size() % 4 != 0)
    return make_error("its curves are missing or cut off");
  Curves curves;
  const std::vector<double> s = steps->second.to_doubles(), t = tests->second.to_doubles();
  for (std::size_t i = 0; i < s.size(); i += 3)
    curves.steps.push_back({s[i], static_cast<std::int64_t>(s[i + 1]), static_cast<std::int64_t>(s[i + 2])});
  for (std::size_t i = 0; i < t.size(); i += 4)
    curves.tests.push_back({static_cast<std::int64_t>(t[i]), t[i + 1], static_cast<std::int64_t>(t[i + 2]),
                            static_cast<std::int64_t>(t[i + 3])});
  return curves;
}

std::string curves_csv(const Curves& curves) {
  std::string text = std::string(kHeader) + "\n";
  auto test = curves.tests.begin();
  for (std::size_t i = 0; i < curves.steps.size(); ++i) {
    const StepPoint& point = curves.steps[i];
    std::string tested, accuracy, rows;
    if (test != curves.tests.end() && test->step == static_cast<std::int64_t>(i) + 1) {
      tested = fmt::format("{}", test->loss);
      accuracy = share(test->right, test->rows);
      rows = fmt::format("{}", test->rows);
      ++test;
    }
    text += fmt::format("{},{},{},{},{},{},{}\n", i + 1, point.loss, share(point.right, point.rows), tested, accuracy,
                        point.rows, rows);
  }
  return text;
}

Expected<Curves> read_curves_csv(const fs::path& file) {
  OPDIFF_TRY(const std::string text, read_file(file, kMaximumCsv));
  Curves curves;
  std::size_t start = 0, number = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line(text.data() + start, end - start);
    start = end + 1;
    if (number++ == 0) {
      if (line != kHeader) return make_error("{}: its first line is not '{}'", file.string(), kHeader);
      continue;
    }
    std::vector<double> values;
    for (std::size_t at = 0; at <= line.size();) {
      const std::size_t comma = std::min(line.find(',', at), line.size());
      double value = NAN;
      const auto [stop, problem] = std::from_chars(line.data() + at, line.data() + comma, value);
      if (comma > at && (problem != std::errc() || stop != line.data() + comma))
        return make_error("{}: line {}: '{}' is no number", file.string(), number, line.substr(at, comma - at));
      values.push_back(value);
      at = comma + 1;
    }
    if (values.size() != 7) return make_error("{}: line {}: {} values, not 7", file.string(), number, values.size());
    if (values[0] != static_cast<double>(number - 1))
      return make_error("{}: line {}: step {}, not {}", file.string(), number, values[0], number - 1);
    constexpr double kMostRows = 1e15;
    const auto is_share = [](double v) { return std::isnan(v) || (v >= 0 && v <= 1); };
    if (!(values[5] >= 1 && values[5] <= kMostRows) || values[6] < 1 || values[6] > kMostRows || !is_share(values[2]) ||
        !is_share(values[4]))
      return make_error("{}: line {}: a count or a share is out of range", file.string(), number);
    const auto count = [](double accuracy, double rows) {
      return std::isnan(accuracy) || std::isnan(rows) ? -1 : static_cast<std::int64_t>(std::llround(accuracy * rows));
    };
    const auto rows = [](double v) { return std::isnan(v) ? 0 : static_cast<std::int64_t>(v); };
    curves.steps.push_back({values[1], count(values[2], values[5]), rows(values[5])});
    if (!std::isnan(values[6]))
      curves.tests.push_back(
          {static_cast<std::int64_t>(curves.steps.size()), values[3], count(values[4], values[6]), rows(values[6])});
  }
  if (number == 0 || text.back() != '\n') return make_error("{}: is cut off", file.string());
  return curves;
}

Expected<void> plot_curves(std::vector<PlottedRun> runs, const fs::path& file) {
  std::stable_partition(runs.begin(), runs.end(), [](const PlottedRun& run) { return run.noise; });
  bool classes = false;
  std::string data, losses, accuracies;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const Curves& curves = runs[run].curves;
    const std::size_t block = std::max<std::size_t>(1, curves.steps.size() / kPlotted);
    data += fmt::format("$loss{} << EOD\n", run);
    for (std::size_t i = 0; i < curves.steps.size(); i += block) {
      const std::size_t end = std::min(i + block, curves.steps.size());
      double sum = 0;
      for (std::size_t k = i; k < end; ++k) sum += curves.steps[k].loss;
      data += fmt::format("{} {}\n", 0.5 * static_cast<double>(i + end + 1), sum / static_cast<double>(end - i));
    }
    data += fmt::format("EOD\n$test{} << EOD\n", run);
    bool tested = false;
    for (const TestPoint& point : curves.tests)
      if (point.right >= 0) {
        tested = true;
        data += fmt::format("{} {}\n", point.step,
                            100.0 * static_cast<double>(point.right) / static_cast<double>(point.rows));
      }
    data += "EOD\n";
    const bool noise = runs[run].noise;
    const std::string style = noise ? "lc rgb 'gray' lw 0.5" : fmt::format("lt {}", run + 1);
    const bool named = !noise || run == 0;
    const std::string title = named ? "title " + gnuplot_quoted(runs[run].name) : "notitle";
    losses += fmt::format("{}$loss{} using 1:2 with lines {} {}", run ? ", " : "", run, style, title);
    if (tested)
      accuracies += fmt::format("{}$test{} using 1:2 with {} {} {}", accuracies.empty() ? "" : ", ", run,
                                noise ? "lines" : "linespoints", style, title);
    classes = classes || tested;
  }
  std::string commands =
      data + fmt::format("set grid\nset multiplot layout {},1\nset logscale y\nset ylabel 'loss'\n{}plot {}\n",
                         classes ? 2 : 1, classes ? "" : "set xlabel 'step'\n", losses);
  if (classes)
    commands += fmt::format(
        "unset logscale y\nset xlabel 'step'\nset ylabel 'test accuracy, %'\nset key bottom right\nplot {}\n",
        accuracies);
  return plot_svg(file, 900, classes ? 700 : 400, commands + "unset multiplot\n");
}

}  // namespace opdiff
