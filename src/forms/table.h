// The results of `opdiff forms check` as tables and a picture.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "forms/check.h"
#include "forms/measure.h"

namespace opdiff {

struct FormReport {
  std::string command, version;
  std::vector<FormRow> rows;
  std::vector<Finding> findings;
  std::vector<std::string> notes;
  Coverage coverage;

  std::int64_t alarms() const;
  std::int64_t cases() const;
};

// The rows, the findings, the notes and the coverage; `widths` pads the columns for a terminal.
// For a console: the columns that matter first, aligned.
std::string summary(const FormReport& report, bool coverage);
std::string markdown(const FormReport& report, bool coverage);
// A line a row; numbers as they are. Columns are named in the first line.
std::string csv(const FormReport& report);
// Everything; docs/formats/forms.md has the members.
std::string json(const FormReport& report);
// Speed-up against error, a point a row, a colour a backend: SVG.
Expected<void> plot(const FormReport& report, const std::filesystem::path& file);

// Time of the first side with the optimiser off by that of this row with it on; nullopt where one is not measured.
std::optional<double> speed_up(const FormReport& report, const FormRow& row);

}  // namespace opdiff
