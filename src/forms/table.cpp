#include "forms/table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "forms/measure.h"
#include "workers/gnuplot.h"

namespace opdiff {
namespace {

std::string number(double value) {
  if (std::isinf(value)) return "inf";
  return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.2g}", value);
}

std::string milliseconds(const FormCost& cost) {
  const auto median = cost.median_ms();
  return median ? fmt::format("{:.3g} ± {:.1g}", *median, cost.spread_ms() / 2) : "-";
}

std::string bytes(const FormCost& cost) {
  if (!cost.peak_bytes) return "-";
  return fmt::format("{:.3g}", static_cast<double>(*cost.peak_bytes) / 1024);
}

std::string names(const std::vector<Kernel>& kernels) {
  std::string text;
  for (const Kernel& kernel : kernels) text += fmt::format("{}{}", text.empty() ? "" : " ", kernel.name);
  return text;
}

// "3 -> 1: FusedConv".
std::string kernels_of(const FormRow& row) {
  const auto& before = row.plain_cost.kernels;
  const auto& after = row.whole_cost.kernels;
  if (!before && !after) return "not said";
  const auto count = [](const auto& kernels) {
    return kernels ? std::to_string(computing_kernels(*kernels)) : std::string("?");
  };
  if (row.backend == row.plain_backend) return count(before);
  std::string text = fmt::format("{} -> {}", count(before), count(after));
  if (after && fused(row).value_or(false)) text += ": " + names(*after).substr(0, 120);
  return text;
}

std::string escaped(std::string text) {  // of a Markdown table or a CSV field
  for (char& c : text)
    if (c == '|' || c == '\n' || c == '"') c = '/';
  return text;
}

std::string beyond(const FormRow& row) {
  std::string text;
  for (const auto& [what, n] : row.explanations) text += fmt::format("{}{} x {}", text.empty() ? "" : "; ", n, what);
  return text;
}

nlohmann::json to_json(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(fmt::format("{}", value));
}

nlohmann::json to_json(const FormCost& cost) {
  nlohmann::json result{{"runs", cost.wall_ms.size()}, {"processes", cost.life_ms.size()}};
  result["median_ms"] = cost.median_ms() ? nlohmann::json(*cost.median_ms()) : nlohmann::json();
  result["spread_ms"] = cost.spread_ms();
  result["peak_bytes"] = cost.peak_bytes ? nlohmann::json(*cost.peak_bytes) : nlohmann::json();
  if (cost.kernels) {
    result["kernels"] = nlohmann::json::array();
    for (const Kernel& kernel : *cost.kernels)
      result["kernels"].push_back({{"kernel", kernel.name}, {"nodes", kernel.nodes}});
  }
  return result;
}

}  // namespace

std::int64_t FormReport::alarms() const {
  std::int64_t total = 0;
  for (const FormRow& row : rows) total += row.alarms;
  return total;
}

std::int64_t FormReport::cases() const {
  std::int64_t total = 0;
  for (const FormRow& row : rows) total += row.cases;
  return total;
}

std::optional<double> speed_up(const FormReport& report, const FormRow& row) {
  for (const FormRow& first : report.rows) {
    if (first.form != row.form || first.backend != row.backend || first.dtype != row.dtype ||
        first.direction != row.direction)
      continue;
    const auto before = first.plain_cost.median_ms(), after = row.whole_cost.median_ms();
    if (!before || !after || *after <= 0) return std::nullopt;
    return *before / *after;
  }
  return std::nullopt;
}

namespace {

// Findings, what was not done, and the coverage: the same in the Markdown and on a console.
std::string closing(const FormReport& report, bool coverage) {
  std::string text = fmt::format("\n{} cases of {} rows, {} alarms, {} findings.\n", report.cases(), report.rows.size(),
                                 report.alarms(), report.findings.size());
  if (!report.findings.empty()) text += "\n## Findings\n\n";
  for (const Finding& finding : report.findings) {
    text += fmt::format("* {}: {} cases, `{}`\n  {}\n  repeat: `{}`\n", finding.signature(), finding.count,
                        to_string(finding.rung), finding.evidence, finding.repeat);
    for (const auto& [form, n] : finding.forms) text += fmt::format("  seen in {} ({})\n", form, n);
  }
  if (!report.notes.empty()) text += "\n## Not done\n\n";
  for (const std::string& note : report.notes) text += "* " + note + "\n";
  if (coverage) {
    text +=
        "\n## Coverage\n\nCases that ran (and, after a plus, that the backend does not support) in each region.\n\n"
        "| form | region | dtype | direction |";
    std::set<std::string> backends;
    std::set<Coverage::Cell> lines;
    for (const auto& [cell, count] : report.coverage.cells()) {
      backends.insert(cell.backend);
      Coverage::Cell line = cell;
      line.backend.clear();
      lines.insert(line);
    }
    for (const std::string& backend : backends) text += fmt::format(" {} |", backend);
    text += "\n| --- | --- | --- | --- |";
    for (std::size_t k = 0; k < backends.size(); ++k) text += " ---: |";
    text += "\n";
    for (const Coverage::Cell& line : lines) {
      text += fmt::format("| {} | {} | {} | {} |", line.form, line.region, line.dtype, line.direction);
      for (const std::string& backend : backends) {
        Coverage::Cell cell = line;
        cell.backend = backend;
        const auto found = report.coverage.cells().find(cell);
        const Coverage::Count count = found == report.coverage.cells().end() ? Coverage::Count() : found->second;
        text += count.unsupported > 0 ? fmt::format(" {} + {} |", count.ran, count.unsupported)
                                      : fmt::format(" {} |", count.ran);
      }
      text += "\n";
    }
  }
  return text;
}

std::string verdict_of(const FormRow& row) {
  std::string verdict = row.verdict();
  if (row.known > 0) verdict += fmt::format(", {} known", row.known);
  if (row.cases == 0 && !row.reasons.empty()) verdict += ": " + row.reasons.begin()->first;
  return verdict;
}

}  // namespace

std::string summary(const FormReport& report, bool coverage) {
  constexpr std::size_t kWidest = 28, kColumns = 12;
  std::vector<std::array<std::string, kColumns>> lines = {{"form", "side", "backend", "dtype", "direction", "cases",
                                                           "error", "fused", "plain ms", "ms", "speed-up", "verdict"}};
  for (const FormRow& row : report.rows) {
    const auto speed = speed_up(report, row);
    const auto is_fused = fused(row);
    const auto ms = [](const FormCost& cost) {
      return cost.median_ms() ? fmt::format("{:.3g}", *cost.median_ms()) : "-";
    };
    lines.push_back({row.form, row.side, row.backend, row.dtype, row.direction, std::to_string(row.cases),
                     row.honest > 0 ? number(row.whole.rms) + " / " + number(row.whole.max) : "-",
                     !is_fused   ? "not said"
                     : *is_fused ? "yes"
                                 : "no",
                     ms(row.plain_cost), ms(row.whole_cost), speed ? fmt::format("{:.2f}", *speed) : "-",
                     verdict_of(row)});
  }
  std::array<std::size_t, kColumns> widths{};
  for (auto& line : lines)
    for (std::size_t k = 0; k + 1 < kColumns; ++k) {
      if (line[k].size() > kWidest) line[k] = line[k].substr(0, kWidest - 2) + "..";
      widths[k] = std::max(widths[k], line[k].size());
    }
  std::string text;
  for (const auto& line : lines) {
    for (std::size_t k = 0; k < kColumns; ++k) {
      if (k > 0) text += "  ";
      text += k + 1 == kColumns ? line[k]
              : k < 5           ? fmt::format("{:<{}}", line[k], widths[k])
                                : fmt::format("{:>{}}", line[k], widths[k]);
    }
    text += "\n";
  }
  text +=
      "\nerror: of the whole as configured, in multiples of what roundings cause (root mean square / largest; wrong "
      "beyond 3 / 10);\n"
      "speed-up: the first side with nothing fused by this side as configured. All columns: --markdown, --csv, "
      "--json.\n";
  return text + closing(report, coverage);
}

std::string markdown(const FormReport& report, bool coverage) {
  std::string text =
      "Errors are multiples of what roundings cause (root mean square / largest; wrong beyond 3 / 10). `alone`: the "
      "worst rung of the nodes one by one;\n`plain`: the whole with the optimiser off; `whole`: as configured; "
      "`sides`: this side as configured against the first side, plain. Times are medians of three processes ± "
      "half\nthe distance of the "
      "quartiles, in ms; speed-up: first side plain by this side as configured. Memory: peak, in KiB.\n\n"
      "| form | side | backend | dtype | direction | cases | unsupported | alone | plain | whole | sides | relative "
      "error | kernels | plain ms | whole ms | speed-up | plain KiB | whole KiB | verdict |\n"
      "| --- | --- | --- | --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: "
      "| ---: | --- |\n";
  for (const FormRow& row : report.rows) {
    const bool ran = row.cases > 0;
    const auto pair = [&](const WorstReading& r) {
      return row.honest > 0 ? number(r.rms) + " / " + number(r.max) : "-";
    };
    const auto speed = speed_up(report, row);
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", row.form,
        escaped(row.side), row.backend, row.dtype, row.direction, row.cases, row.unsupported,
        row.honest > 0 ? escaped(beyond(row).empty() ? "rounding" : beyond(row)) : "-", pair(row.plain),
        pair(row.whole), pair(row.difference), row.honest > 0 ? fmt::format("{:.1e}", row.relative_error) : "-",
        ran ? escaped(kernels_of(row)) : "-", milliseconds(row.plain_cost), milliseconds(row.whole_cost),
        speed ? fmt::format("{:.2f}", *speed) : "-", bytes(row.plain_cost), bytes(row.whole_cost),
        escaped(verdict_of(row)));
  }
  return text + closing(report, coverage);
}

std::string csv(const FormReport& report) {
  std::string text =
      "form,side,backend,plain_backend,dtype,direction,cases,unsupported,errors,known,alarms,plain_rms,plain_max,"
      "whole_rms,whole_max,sides_rms,sides_max,relative_error,plain_kernels,whole_kernels,plain_ms,plain_spread_ms,"
      "whole_ms,whole_spread_ms,speed_up,plain_peak_bytes,whole_peak_bytes,verdict\n";
  const auto optional = [](const auto& value) { return value ? fmt::format("{}", *value) : std::string(); };
  const auto count = [](const FormCost& cost) {
    return cost.kernels ? std::to_string(computing_kernels(*cost.kernels)) : std::string();
  };
  for (const FormRow& r : report.rows)
    text +=
        fmt::format("{},\"{}\",\"{}\",\"{}\",{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                    r.form, escaped(r.side), r.backend, r.plain_backend, r.dtype, r.direction, r.cases, r.unsupported,
                    r.errors, r.known, r.alarms, r.plain.rms, r.plain.max, r.whole.rms, r.whole.max, r.difference.rms,
                    r.difference.max, r.relative_error, count(r.plain_cost), count(r.whole_cost),
                    optional(r.plain_cost.median_ms()), r.plain_cost.spread_ms(), optional(r.whole_cost.median_ms()),
                    r.whole_cost.spread_ms(), optional(speed_up(report, r)), optional(r.plain_cost.peak_bytes),
                    optional(r.whole_cost.peak_bytes), r.verdict());
  return text;
}

std::string json(const FormReport& report) {
  nlohmann::json rows = nlohmann::json::array(), findings = rows, cells = rows;
  for (const FormRow& r : report.rows) {
    nlohmann::json rungs;
    for (int k = 0; k < kRungCount; ++k)
      if (r.rungs[static_cast<std::size_t>(k)] > 0)
        rungs[std::string(to_string(static_cast<Rung>(k)))] = r.rungs[static_cast<std::size_t>(k)];
    const auto reading = [](const WorstReading& w) {
      return nlohmann::json{{"rms", to_json(w.rms)}, {"max", to_json(w.max)}};
    };
    const auto speed = speed_up(report, r);
    rows.push_back({{"form", r.form},
                    {"side", r.side},
                    {"backend", r.backend},
                    {"plain_backend", r.plain_backend},
                    {"dtype", r.dtype},
                    {"direction", r.direction},
                    {"cases", r.cases},
                    {"unsupported", r.unsupported},
                    {"errors", r.errors},
                    {"known", r.known},
                    {"alarms", r.alarms},
                    {"honest", r.honest},
                    {"reasons", r.reasons},
                    {"nodes_alone", rungs},
                    {"explanations", r.explanations},
                    {"plain", reading(r.plain)},
                    {"whole", reading(r.whole)},
                    {"sides", reading(r.difference)},
                    {"relative_error", to_json(r.relative_error)},
                    {"plain_cost", to_json(r.plain_cost)},
                    {"whole_cost", to_json(r.whole_cost)},
                    {"fused", fused(r) ? nlohmann::json(*fused(r)) : nlohmann::json()},
                    {"speed_up", speed ? to_json(*speed) : nlohmann::json()},
                    {"verdict", r.verdict()}});
  }
  for (const Finding& f : report.findings)
    findings.push_back({{"signature", f.signature()},
                        {"op", f.kind.op},
                        {"stage", f.kind.stage},
                        {"pass", f.kind.pass},
                        {"backend", f.kind.backend},
                        {"dtype", f.kind.dtype},
                        {"outcome", f.kind.outcome},
                        {"pattern", f.pattern},
                        {"rung", std::string(to_string(f.rung))},
                        {"count", f.count},
                        {"region", f.common},
                        {"forms", f.forms},
                        {"evidence", f.evidence},
                        {"repeat", f.repeat}});
  for (const auto& [cell, count] : report.coverage.cells())
    cells.push_back({{"form", cell.form},
                     {"region", cell.region},
                     {"backend", cell.backend},
                     {"dtype", cell.dtype},
                     {"direction", cell.direction},
                     {"ran", count.ran},
                     {"unsupported", count.unsupported}});
  const nlohmann::json all{{"opdiff", report.version}, {"command", report.command}, {"rows", rows},
                           {"findings", findings},     {"notes", report.notes},     {"coverage", cells}};
  return all.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Expected<void> plot(const FormReport& report, const std::filesystem::path& file) {
  std::map<std::string, std::string> points;  // by backend
  for (const FormRow& row : report.rows) {
    const auto speed = speed_up(report, row);
    if (!speed || !(row.whole.rms > 0) || !std::isfinite(row.whole.rms)) continue;
    points[row.backend] += fmt::format("{} {}\n", *speed, row.whole.rms);
  }
  if (points.empty()) return make_error("{}: no row has both a time and an error", file.string());
  std::string data, lines;
  int k = 0;
  for (const auto& [backend, values] : points) {
    data += fmt::format("$points{} << EOD\n{}EOD\n", k, values);
    lines += fmt::format("{}$points{} using 1:2 with points pt 7 ps 0.6 lt {} title {}", k ? ", " : "", k, k + 1,
                         gnuplot_quoted(backend));
    ++k;
  }
  return plot_svg(file, 900, 600,
                  data +
                      "set grid\nset logscale x\nset key outside top center horizontal\nset xlabel 'speed-up over the "
                      "first side with the optimiser off'\nset ylabel 'error, in noise floors (root mean square, worst "
                      "case)'\nset yrange [0:*]\nset arrow from 1,graph 0 to 1,graph 1 nohead dt 2 lc 'gray'\nplot " +
                      lines + "\n");
}

}  // namespace opdiff
