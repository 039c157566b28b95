// Errors are values at module boundaries: a function that can fail on outside input returns Expected<T>.
// CHECK is for our own bugs only; it prints where and aborts.
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace opdiff {

// A message for the user: it names the file, node, attribute and value, and what to do about it.
struct Error {
  std::string message;
};

template <class T>
using Expected = tl::expected<T, Error>;

template <class... Args>
tl::unexpected<Error> make_error(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error{fmt::format(format, std::forward<Args>(args)...)});
}

// Puts `context` in front of an error's message: "model.onnx: node 'conv1': ...".
inline tl::unexpected<Error> with_context(std::string_view context, const Error& error) {
  return tl::unexpected<Error>(Error{fmt::format("{}: {}", context, error.message)});
}

[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace opdiff

#define OPDIFF_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::opdiff::check_failed(__FILE__, __LINE__, #condition))

#define OPDIFF_CONCAT_INNER(a, b) a##b
#define OPDIFF_CONCAT(a, b) OPDIFF_CONCAT_INNER(a, b)

// OPDIFF_TRY(auto x, expression): x is the value of an Expected, or the enclosing function returns its error.
#define OPDIFF_TRY(declaration, expression) \
  OPDIFF_TRY_INNER(OPDIFF_CONCAT(opdiff_try_, __LINE__), declaration, expression)
#define OPDIFF_TRY_INNER(temporary, declaration, expression)                 \
  auto temporary = (expression);                                             \
  if (!temporary) return tl::unexpected<::opdiff::Error>(temporary.error()); \
  declaration = *std::move(temporary)

// OPDIFF_RETURN_IF_ERROR(expression): for Expected<void>.
#define OPDIFF_RETURN_IF_ERROR(expression)                                             \
  do {                                                                                 \
    auto opdiff_result = (expression);                                                 \
    if (!opdiff_result) return tl::unexpected<::opdiff::Error>(opdiff_result.error()); \
  } while (false)
