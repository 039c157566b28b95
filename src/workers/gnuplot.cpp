#include "workers/gnuplot.h"

#include "base/file.h"
#include "workers/command.h"

namespace opdiff {
namespace fs = std::filesystem;

std::string gnuplot_quoted(std::string text) {
  std::erase_if(text, [](unsigned char c) { return c < 32; });
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "''" : std::string(1, c);
  return result + "'";
}

Expected<void> plot_svg(const fs::path& file, int width, int height, const std::string& commands) {
  return write_file_atomically(file, [&](const std::string& temporary) -> Expected<void> {
    const std::string head = fmt::format(
        "set terminal svg size {},{} dynamic font 'sans,12' noenhanced background '#ffffff'\nset output {}\n", width,
        height, gnuplot_quoted(temporary));
    const fs::path script = temporary + ".gp";
    OPDIFF_RETURN_IF_ERROR(write_file_atomically(script, head + commands));
    const auto ran = run_command({"gnuplot", script.string()});
    std::error_code ignored;
    fs::remove(script, ignored);
    if (!ran)
      return make_error("{}: the plot needs gnuplot (Debian package gnuplot-nox): {}", file.string(),
                        ran.error().message);
    if (ran->status != 0)
      return make_error("{}: gnuplot ended with status {}: {}", file.string(), ran->status, ran->output);
    return {};
  });
}

}  // namespace opdiff
