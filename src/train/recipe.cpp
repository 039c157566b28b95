#include "train/recipe.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "base/file.h"

namespace opdiff {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaximumRecipe = 1u << 20;
constexpr std::int64_t kMaximumBatch = 1 << 20;
constexpr std::int64_t kMaximumExtent = 1 << 16;

std::string_view type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "a list";
    case toml::node_type::string: return "a string";
    case toml::node_type::integer: return "an integer";
    case toml::node_type::floating_point: return "a number";
    case toml::node_type::boolean: return "true or false";
    default: return "a date";
  }
}

std::string value_text(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return fmt::format("\"{}\"", *text);
  if (const auto whole = node.value_exact<std::int64_t>()) return fmt::format("{}", *whole);
  if (const auto real = node.value_exact<double>()) return fmt::format("{}", *real);
  if (const auto truth = node.value_exact<bool>()) return *truth ? "true" : "false";
  return std::string(type_name(node));
}

// A table whose keys are asked for one by one; at the end, those that nobody asked for are an error.
class Keys {
 public:
  Keys(const toml::table& table, std::string prefix) : table_(table), prefix_(std::move(prefix)) {}

  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  const toml::node* get(std::string_view key) {
    asked_.insert(std::string(key));
    return table_.get(key);
  }
  Expected<void> text(std::string_view key, std::string* value) {
    const toml::node* node = get(key);
    if (!node) return {};
    const auto text = node->value_exact<std::string>();
    if (!text) return wrong(key, *node, "must be a string");
    if (text->empty()) return make_error("'{}' is empty", name(key));
    *value = *text;
    return {};
  }
  Expected<void> whole(std::string_view key, std::int64_t low, std::int64_t high, std::int64_t* value) {
    const toml::node* node = get(key);
    if (!node) return {};
    const auto whole = node->value_exact<std::int64_t>();
    if (!whole || *whole < low || *whole > high)
      return wrong(key, *node, fmt::format("must be a whole number from {} to {}", low, high));
    *value = *whole;
    return {};
  }
  Expected<const toml::table*> table(std::string_view key) {
    const toml::node* node = get(key);
    if (!node) return nullptr;
    if (!node->is_table()) return wrong(key, *node, "must be a table");
    return node->as_table();
  }
  tl::unexpected<Error> wrong(std::string_view key, const toml::node& node, std::string_view what) const {
    return make_error("line {}: '{}' is {}; it {}", node.source().begin.line, name(key), value_text(node), what);
  }
  Expected<void> finish() const {
    for (const auto& [key, node] : table_)
      if (!asked_.contains(std::string(key.str())))
        return make_error("line {}: unknown key '{}'; known here: {}", node.source().begin.line, name(key.str()),
                          fmt::join(asked_, " "));
    return {};
  }

 private:
  const toml::table& table_;
  const std::string prefix_;
  std::set<std::string> asked_;
};

// "~/x" and "$NAME/x"; nullopt where the variable is not set.
std::optional<fs::path> expand(const std::string& text, const fs::path& base) {
  std::string path = text;
  if (path.starts_with("~/") || path == "~") path = "$HOME" + path.substr(1);
  if (path.starts_with("$")) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const char* value = std::getenv(path.substr(1, end - 1).c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    path = value + path.substr(end);
  }
  return (base / path).lexically_normal();
}

Expected<std::vector<std::string>> texts(const Keys& keys, std::string_view key, const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return std::vector{*text};
  const toml::array* list = node.as_array();
  std::vector<std::string> result;
  if (!list) return keys.wrong(key, node, "must be a string or a list of strings");
  for (const auto& item : *list) {
    const auto text = item.value_exact<std::string>();
    if (!text) return keys.wrong(key, item, "must be a string or a list of strings");
    result.push_back(*text);
  }
  return result;
}

Expected<std::vector<double>> numbers(Keys& keys, std::string_view key, double low) {
  const toml::node* node = keys.get(key);
  std::vector<double> result;
  if (!node) return result;
  const std::string what = low >= 0 ? "must be a number above 0, or a list of such, one a channel"
                                    : "must be a number, or a list, one a channel";
  const auto add = [&](const toml::node& item) {
    const auto value = item.value<double>();
    if (!item.is_number() || !value || !std::isfinite(*value) || *value <= low) return false;
    result.push_back(*value);
    return true;
  };
  if (const toml::array* list = node->as_array()) {
    if (list->empty()) return keys.wrong(key, *node, what);
    for (const auto& item : *list)
      if (!add(item)) return keys.wrong(key, item, what);
  } else if (!add(*node)) {
    return keys.wrong(key, *node, what);
  }
  return result;
}

// "digits.npz:images" is a file and an array.
void set_file(const fs::path& folder, const std::string& text, std::string_view array, fs::path* file,
              std::string* name) {
  const std::size_t at = text.rfind(".npz:");
  *file = (folder / text.substr(0, at == std::string::npos ? at : at + 4)).lexically_normal();
  if (file->extension() == ".npz") *name = at == std::string::npos ? std::string(array) : text.substr(at + 5);
}

Expected<std::optional<DataSource>> read_source(Keys& data, std::string_view key, const fs::path& folder) {
  OPDIFF_TRY(const toml::table* table, data.table(key));
  if (!table) return std::nullopt;
  Keys keys(*table, data.name(key) + ".");
  std::string images, labels;
  OPDIFF_RETURN_IF_ERROR(keys.text("images", &images));
  OPDIFF_RETURN_IF_ERROR(keys.text("labels", &labels));
  OPDIFF_RETURN_IF_ERROR(keys.finish());
  if (images.empty()) return make_error("'{}' is missing", keys.name("images"));
  DataSource source;
  set_file(folder, images, "images", &source.images, &source.images_array);
  if (!labels.empty()) {
    set_file(folder, labels, "labels", &source.labels, &source.labels_array);
  } else if (source.images.extension() == ".npz") {
    source.labels = source.images;
    source.labels_array = "labels";
  }
  return source;
}

Expected<void> read_data(Keys& top, const fs::path& data_folder, Recipe* recipe) {
  OPDIFF_TRY(const toml::table* table, top.table("data"));
  if (!table) return make_error("the table [data] is missing");
  Keys keys(*table, "data.");
  const fs::path base = recipe->file.parent_path();
  fs::path folder = base;
  if (const toml::node* node = keys.get("folder")) {
    OPDIFF_TRY(const auto candidates, texts(keys, "folder", *node));
    // The first that is there, else the last: the message then names that one.
    for (const std::string& text : candidates) {
      const auto candidate = expand(text, base);
      if (!candidate) continue;
      folder = *candidate;
      std::error_code ignored;
      if (fs::is_directory(folder, ignored)) break;
    }
  }
  if (!data_folder.empty()) folder = data_folder;
  std::string hint;
  OPDIFF_RETURN_IF_ERROR(keys.text("missing", &hint));
  if (!hint.empty()) recipe->data_hint = hint;
  OPDIFF_TRY(const auto train, read_source(keys, "train", folder));
  if (!train) return make_error("the table [data.train] is missing");
  recipe->train = *train;
  OPDIFF_TRY(recipe->test, read_source(keys, "test", folder));
  return keys.finish();
}

Expected<void> read_transform(Keys& top, Recipe* recipe) {
  OPDIFF_TRY(const toml::table* table, top.table("transform"));
  if (!table) return {};
  Keys keys(*table, "transform.");
  Transform& transform = recipe->transform;
  if (const toml::node* node = keys.get("resize")) {
    const toml::array* list = node->as_array();
    const auto height = list && list->size() == 2 ? list->get(0)->value_exact<std::int64_t>() : std::nullopt;
    const auto width = height ? list->get(1)->value_exact<std::int64_t>() : std::nullopt;
    if (!width || *height < 1 || *width < 1 || *height > kMaximumExtent || *width > kMaximumExtent)
      return keys.wrong("resize", *node, "must be [height, width]");
    transform.resize = {*height, *width};
  }
  OPDIFF_TRY(transform.mean, numbers(keys, "mean", -HUGE_VAL));
  OPDIFF_TRY(transform.deviation, numbers(keys, "deviation", 0));
  if (const toml::node* node = keys.get("flip")) {
    const auto chance = node->value<double>();
    if (!node->is_number() || !chance || !(*chance >= 0 && *chance <= 1))
      return keys.wrong("flip", *node, "must be the chance of a horizontal flip, from 0 to 1");
    transform.flip = *chance;
  }
  return keys.finish();
}

Expected<void> read_bindings(Keys& top, Recipe* recipe) {
  const toml::node* node = top.get("bind");
  if (!node) return {};
  if (const toml::table* table = node->as_table()) {
    for (const auto& [key, value] : *table) {
      const auto backend = value.value_exact<std::string>();
      if (!backend || backend->empty()) return top.wrong(fmt::format("bind.{}", key.str()), value, "must be a backend");
      recipe->bindings.push_back({std::string(key.str()), *backend});
    }
    return {};
  }
  OPDIFF_TRY(const auto list, texts(top, "bind", *node));
  for (const std::string& text : list) {
    auto binding = parse_binding(text);
    if (!binding) return with_context("'bind'", binding.error());
    recipe->bindings.push_back(*std::move(binding));
  }
  return {};
}

Expected<Recipe> recipe_of(const toml::table& table, const fs::path& file, const fs::path& data_folder) {
  Recipe recipe;
  recipe.file = file;
  Keys keys(table, "");
  const fs::path base = file.parent_path();
  std::string model, out;
  OPDIFF_RETURN_IF_ERROR(keys.text("model", &model));
  if (model.empty()) return make_error("'model' is missing: the ONNX file to train");
  recipe.model = (base / model).lexically_normal();
  OPDIFF_RETURN_IF_ERROR(keys.text("loss", &recipe.loss));
  std::string american;
  OPDIFF_RETURN_IF_ERROR(keys.text("optimiser", &recipe.optimiser));
  OPDIFF_RETURN_IF_ERROR(keys.text("optimizer", &american));
  if (!american.empty()) recipe.optimiser = american;
  OPDIFF_RETURN_IF_ERROR(keys.whole("batch", 1, kMaximumBatch, &recipe.batch));
  OPDIFF_RETURN_IF_ERROR(keys.whole("epochs", 1, 1'000'000, &recipe.epochs));
  std::int64_t seed = 0;
  OPDIFF_RETURN_IF_ERROR(keys.whole("seed", 0, INT64_MAX, &seed));
  recipe.seed = static_cast<std::uint64_t>(seed);
  OPDIFF_RETURN_IF_ERROR(keys.text("backend", &recipe.backend));
  OPDIFF_RETURN_IF_ERROR(keys.text("out", &out));
  recipe.out = out.empty() ? fs::path(file.stem().string() + ".run") : (base / out).lexically_normal();
  OPDIFF_RETURN_IF_ERROR(keys.whole("checkpoint_steps", 0, INT64_MAX, &recipe.checkpoint_steps));
  OPDIFF_RETURN_IF_ERROR(read_data(keys, data_folder, &recipe));
  OPDIFF_RETURN_IF_ERROR(read_transform(keys, &recipe));
  OPDIFF_RETURN_IF_ERROR(read_bindings(keys, &recipe));
  OPDIFF_RETURN_IF_ERROR(keys.finish());
  return recipe;
}

}  // namespace

Expected<Binding> parse_binding(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    return make_error("'{}': expected WHAT=BACKEND, such as Conv=onednn, fc3=reference or 'conv*=torch'", text);
  return Binding{text.substr(0, at), text.substr(at + 1)};
}

Expected<Recipe> read_recipe(const fs::path& file, const fs::path& data_folder) {
  if (file.extension() == ".onnx")
    return make_error("{}: a model; training takes a recipe, a TOML file that names it (docs/formats/recipe.md)",
                      file.string());
  OPDIFF_TRY(const std::string text, read_file(file, kMaximumRecipe));
  try {
    auto recipe = recipe_of(toml::parse(text, file.string()), file, data_folder);
    if (!recipe) return with_context(file.string(), recipe.error());
    return recipe;
  } catch (const toml::parse_error& problem) {
    return make_error("{}: line {}: {}", file.string(), problem.source().begin.line, problem.description());
  }
}

}  // namespace opdiff
