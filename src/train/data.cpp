#include "train/data.h"

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/npy.h"
#include "base/rng.h"
#include "train/image_file.h"

namespace opdiff {
namespace fs = std::filesystem;
namespace {

Expected<Tensor> read_array(const fs::path& file, const std::string& array) {
  OPDIFF_TRY(const auto arrays, read_npz(file));
  const auto found = arrays.find(array);
  if (found != arrays.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : arrays) names.push_back(name);
  return make_error("{}: has no array '{}'; it has: {}", file.string(), array, fmt::join(names, " "));
}

// An array of an archive, or an IDX file.
Expected<Tensor> read_one(const fs::path& file, const std::string& array, const std::optional<std::string>& hint) {
  std::error_code ignored;
  if (!fs::exists(file, ignored) && !fs::exists(file.string() + ".gz", ignored))
    return make_error("{}: no such file{}{}", file.string(), hint ? "; " : "", hint.value_or(""));
  return array.empty() ? read_idx(file) : read_array(file, array);
}

std::string name_of(const fs::path& file, const std::string& array) {
  return array.empty() ? file.string() : fmt::format("{}, array '{}'", file.string(), array);
}

Expected<std::vector<fs::path>> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error))
    if (!entry->path().filename().string().starts_with(".")) entries.push_back(entry->path());
  if (error) return make_error("{}: {}", folder.string(), error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

// FOLDER/CLASS/*.png, all of one size; classes in alphabetical order.
Expected<Dataset> read_folder(const fs::path& folder) {
  Dataset data;
  data.images_name = data.labels_name = folder.string();
  std::vector<Tensor> pictures;
  std::vector<std::int64_t> labels;
  OPDIFF_TRY(const auto classes, sorted_entries(folder));
  std::uint64_t bytes = 0;
  for (const fs::path& one : classes) {
    std::error_code ignored;
    if (!fs::is_directory(one, ignored)) continue;
    OPDIFF_TRY(const auto files, sorted_entries(one));
    for (const fs::path& file : files) {
      std::string extension = file.extension().string();
      std::transform(extension.begin(), extension.end(), extension.begin(),
                     [](unsigned char c) { return std::tolower(c); });
      if (extension != ".png")
        return make_error("{}: pictures of a folder must be PNG (convert others, or make an .npz)", file.string());
      OPDIFF_TRY(Tensor picture, read_png(file, pictures.empty() ? 0 : static_cast<int>(pictures[0].shape()[0])));
      if (!pictures.empty() && picture.shape() != pictures[0].shape())
        return make_error("{}: is {} pixels, the pictures before it are {}", file.string(), to_string(picture.shape()),
                          to_string(pictures[0].shape()));
      bytes += picture.byte_size();
      OPDIFF_RETURN_IF_ERROR(check_fits_in_memory(2 * bytes));
      pictures.push_back(std::move(picture));
      labels.push_back(static_cast<std::int64_t>(data.classes.size()));
    }
    data.classes.push_back(one.filename().string());
  }
  if (pictures.empty()) return make_error("{}: has no folder with pictures; one a class is expected", folder.string());
  Shape shape = pictures[0].shape();
  shape.insert(shape.begin(), static_cast<std::int64_t>(pictures.size()));
  data.images = Tensor::zeros(DType::u8, shape);
  std::byte* place = data.images.mutable_bytes().data();
  for (const Tensor& picture : pictures) {
    std::copy(picture.bytes().begin(), picture.bytes().end(), place);
    place += picture.byte_size();
  }
  data.labels = Tensor::from_int64s(DType::i64, {static_cast<std::int64_t>(labels.size())}, labels);
  return data;
}

}  // namespace

Expected<Dataset> read_dataset(const DataSource& source, const std::optional<std::string>& hint) {
  if (source.labels.empty()) {
    std::error_code ignored;
    if (fs::is_directory(source.images, ignored)) return read_folder(source.images);
    if (!fs::exists(source.images, ignored))
      return make_error("{}: no such folder{}{}", source.images.string(), hint ? "; " : "", hint.value_or(""));
    return make_error("{}: is no folder of classes, and no 'labels' are named for it", source.images.string());
  }
  Dataset data;
  data.images_name = name_of(source.images, source.images_array);
  data.labels_name = name_of(source.labels, source.labels_array);
  OPDIFF_TRY(data.images, read_one(source.images, source.images_array, hint));
  OPDIFF_TRY(data.labels, read_one(source.labels, source.labels_array, hint));
  if (data.images.shape().empty() || data.images.size() == 0)
    return make_error("{}: has shape {}; samples along the first axis are expected", data.images_name,
                      to_string(data.images.shape()));
  if (data.labels.shape().empty() || data.labels.shape()[0] != data.size())
    return make_error("{}: has shape {}, but there are {} samples in {}", data.labels_name,
                      to_string(data.labels.shape()), data.size(), data.images_name);
  if (data.images.dtype() != DType::u8) {
    if (!is_float(data.images.dtype()) && !is_integer(data.images.dtype()))
      return make_error("{}: is of type {}; numbers are expected", data.images_name, dtype_name(data.images.dtype()));
    const std::vector<double> values = data.images.to_doubles();
    const auto bad = std::find_if(values.begin(), values.end(), [](double v) { return !std::isfinite(v); });
    if (bad != values.end()) return make_error("{}: element {} is {}", data.images_name, bad - values.begin(), *bad);
    data.images = Tensor::from_doubles(DType::f32, data.images.shape(), values);
  }
  if (is_integer(data.labels.dtype()))
    data.labels = Tensor::from_int64s(DType::i64, data.labels.shape(), data.labels.to_int64s());
  else if (!is_float(data.labels.dtype()))
    return make_error("{}: is of type {}; numbers are expected", data.labels_name, dtype_name(data.labels.dtype()));
  return data;
}

Expected<void> check_classes(const Dataset& data, std::int64_t classes, std::optional<std::int64_t> ignored) {
  if (data.labels.dtype() != DType::i64 || data.labels.shape().size() != 1)
    return make_error("{}: is {}; a loss over classes needs one whole number a sample", data.labels_name,
                      to_string(TensorType{data.labels.dtype(), data.labels.shape()}));
  const auto labels = data.labels.as<std::int64_t>();
  for (std::size_t i = 0; i < labels.size(); ++i)
    if ((labels[i] < 0 || labels[i] >= classes) && labels[i] != ignored)
      return make_error("{}: label {} is {}; the model has the classes 0 to {}", data.labels_name, i, labels[i],
                        classes - 1);
  return {};
}

Expected<Preprocessing> Preprocessing::make(const Transform& transform, const Shape& raw, const Shape& sample) {
  Preprocessing result;
  result.transform_ = transform;
  result.sample_ = sample;
  result.is_image_ = raw.size() == 2 || raw.size() == 3;
  Shape shape = raw;
  if (result.is_image_) {
    result.channels_ = raw.size() == 3 ? raw[0] : 1;
    result.height_ = raw[raw.size() - 2];
    result.width_ = raw[raw.size() - 1];
    shape = {result.channels_, result.height_, result.width_};
  } else {
    if (transform.resize || transform.flip > 0)
      return make_error(
          "samples of shape {} are no pictures ([height, width] or [channels, height, width]) that could "
          "be resized or flipped",
          to_string(raw));
    result.channels_ = raw.empty() ? 1 : raw[0];
    result.width_ = element_count(raw) / std::max<std::int64_t>(1, result.channels_);
  }
  if (transform.resize) {
    result.rows_ = taps(result.height_, transform.resize->first);
    result.columns_ = taps(result.width_, transform.resize->second);
    shape[1] = transform.resize->first;
    shape[2] = transform.resize->second;
  }
  const bool same =
      shape == sample || (result.is_image_ && result.channels_ == 1 && Shape{shape[1], shape[2]} == sample) ||
      (!transform.resize && element_count(shape) == element_count(sample) && (sample.size() == 1 || !result.is_image_));
  if (!same)
    return make_error("samples of shape {}{} do not fit the model, whose input takes {}", to_string(raw),
                      transform.resize ? fmt::format(", resized to {},", to_string(shape)) : "", to_string(sample));
  for (const auto& [name, values] : {std::pair{"mean", &transform.mean}, {"deviation", &transform.deviation}})
    if (values->size() > 1 && static_cast<std::int64_t>(values->size()) != result.channels_)
      return make_error("'transform.{}' has {} numbers, the samples have {} channels", name, values->size(),
                        result.channels_);
  return result;
}

std::vector<Preprocessing::Tap> Preprocessing::taps(std::int64_t from, std::int64_t to) {
  std::vector<Tap> result;
  for (std::int64_t i = 0; i < to; ++i) {
    const double centre =
        std::clamp((static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5, 0.0,
                   static_cast<double>(from - 1));
    const auto below = static_cast<std::int64_t>(std::floor(centre));
    result.push_back({below, std::min(below + 1, from - 1), static_cast<float>(centre - static_cast<double>(below))});
  }
  return result;
}

Tensor Preprocessing::batch(const Tensor& data, std::span<const std::int64_t> rows,
                            const std::vector<bool>& flips) const {
  Shape shape = sample_;
  shape.insert(shape.begin(), static_cast<std::int64_t>(rows.size()));
  Tensor result = Tensor::zeros(DType::f32, shape);
  float* out = result.mutable_as<float>().data();
  const std::size_t height = static_cast<std::size_t>(height_), width = static_cast<std::size_t>(width_);
  const std::size_t plane = height * width;
  std::vector<float> picture(plane), stretched;
  const auto one_of = [](const std::vector<double>& values, std::size_t channel, float fallback) {
    return values.empty() ? fallback : static_cast<float>(values[values.size() == 1 ? 0 : channel]);
  };
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (std::size_t channel = 0; channel < static_cast<std::size_t>(channels_); ++channel) {
      const std::size_t start =
          (static_cast<std::size_t>(rows[row]) * static_cast<std::size_t>(channels_) + channel) * plane;
      if (data.dtype() == DType::u8) {
        const std::uint8_t* bytes = data.as<std::uint8_t>().data() + start;
        for (std::size_t i = 0; i < plane; ++i) picture[i] = static_cast<float>(bytes[i]) / 255.0f;
      } else {
        const float* values = data.as<float>().data() + start;
        std::copy(values, values + plane, picture.begin());
      }
      if (!flips.empty() && flips[row])
        for (std::size_t y = 0; y < height; ++y)
          std::reverse(picture.begin() + static_cast<std::ptrdiff_t>(y * width),
                       picture.begin() + static_cast<std::ptrdiff_t>((y + 1) * width));
      const float mean = one_of(transform_.mean, channel, 0), deviation = one_of(transform_.deviation, channel, 1);
      const auto normalised = [&](float v) { return (v - mean) / deviation; };
      if (rows_.empty()) {
        for (std::size_t i = 0; i < plane; ++i) *out++ = normalised(picture[i]);
        continue;
      }
      stretched.assign(rows_.size() * width, 0);
      for (std::size_t y = 0; y < rows_.size(); ++y)
        for (std::size_t x = 0; x < width; ++x)
          stretched[y * width + x] =
              picture[static_cast<std::size_t>(rows_[y].below) * width + x] * (1 - rows_[y].weight) +
              picture[static_cast<std::size_t>(rows_[y].above) * width + x] * rows_[y].weight;
      for (std::size_t y = 0; y < rows_.size(); ++y)
        for (const Tap& tap : columns_)
          *out++ = normalised(stretched[y * width + static_cast<std::size_t>(tap.below)] * (1 - tap.weight) +
                              stretched[y * width + static_cast<std::size_t>(tap.above)] * tap.weight);
    }
  }
  return result;
}

std::vector<std::int64_t> shuffled(std::int64_t samples, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  Rng rng(seed, "order of an epoch", static_cast<std::uint64_t>(epoch));
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(i) - 1))]);
  return order;
}

std::vector<bool> flips_of(std::span<const std::int64_t> rows, double chance, std::uint64_t seed, std::int64_t epoch) {
  std::vector<bool> flips;
  if (chance <= 0) return flips;
  const std::uint64_t of_epoch = Rng(seed, "flips of an epoch", static_cast<std::uint64_t>(epoch)).next();
  for (const std::int64_t row : rows)
    flips.push_back(Rng(of_epoch, "flip", static_cast<std::uint64_t>(row)).chance(chance));
  return flips;
}

Tensor labels_of(const Dataset& data, std::span<const std::int64_t> rows, DType dtype) {
  Shape shape = data.labels.shape();
  shape[0] = static_cast<std::int64_t>(rows.size());
  const std::size_t each = data.labels.byte_size() / static_cast<std::size_t>(data.size());
  Tensor result = Tensor::zeros(data.labels.dtype(), shape);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy_n(data.labels.bytes().begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rows[i]) * each),
                each, result.mutable_bytes().begin() + static_cast<std::ptrdiff_t>(i * each));
  return result.dtype() == dtype ? result : Tensor::from_doubles(dtype, shape, result.to_doubles());
}

}  // namespace opdiff
