// The program: hands over to a subcommand (cli/commands.h).
#include "cli/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"opdiff finds the wrong operator in deep-learning frameworks, with proof."};
  app.set_version_flag("--version", "opdiff " OPDIFF_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 clean, 1 a defect was found, 2 cannot run, 3 a backend crashed, hung or ran out of memory.\n"
      "Help on a subcommand: opdiff SUBCOMMAND --help");
  int status = opdiff::kClean;
  opdiff::add_commands(app, &status);
  if (argc > 1 && argv[1][0] != '-') {
    std::string names;
    bool known = false;
    for (const CLI::App* command : app.get_subcommands({})) {
      known = known || command->check_name(argv[1]);
      names += " " + command->get_name();
    }
    if (!known)
      return opdiff::cannot_run({fmt::format("no command '{}'; there are:{} (opdiff --help)", argv[1], names)});
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? opdiff::kClean : opdiff::kCannotRun;
  } catch (const std::bad_alloc&) {
    return opdiff::cannot_run({"out of memory: a tensor of the model or of its evaluation does not fit"});
  } catch (const std::exception& error) {  // standard output is full or closed
    return opdiff::cannot_run({error.what()});
  }
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  const int unwritten = opdiff::cannot_run({"standard output cannot be written (disk full?)"});
  return status == opdiff::kClean ? unwritten : status;
}
