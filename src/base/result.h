#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/check.h"

namespace tandem {

/// What kind of failure an Error is. The server maps these to HTTP statuses.
enum class Code {
  kInvalidArgument,     ///< The caller's input is wrong; it must change before a retry.
  kNotFound,            ///< A named file, model or tensor does not exist.
  kFailedPrecondition,  ///< Right input, wrong state (draining, not loaded).
  kResourceExhausted,   ///< A stated limit is reached (queue, memory, pages).
  kDeadlineExceeded,    ///< Time ran out.
  kCancelled,           ///< The caller gave up.
  kUnavailable,         ///< A peer or device is gone; a retry may succeed.
  kDataLoss,            ///< Stored or received bytes are damaged.
  kUnimplemented,       ///< Valid, but not supported here.
  kInternal,            ///< A defect of ours that was caught.
};

const char* code_name(Code code);

/// One failure, told once: what went wrong, where in the input, and how to fix it, in `what`;
/// the line of code that noticed it in `file`:`line`.
struct Error {
  Code code = Code::kInternal;
  std::string what;
  const char* file = "";
  int line = 0;
};

/// Makes an Error that remembers the calling line.
inline Error make_error(Code code, std::string what, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE()) {
  return Error{code, std::move(what), file, line};
}

/// Puts what the caller was doing in front of an error: "loading model: file is truncated".
inline Error with_context(Error error, const std::string& context) {
  error.what = context + ": " + error.what;
  return error;
}

/// A value or an Error. Anything a client, peer, file or device can cause comes back as one;
/// only defects of this program are checks. Reading the wrong side is such a defect.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    TANDEM_CHECK(ok(), error().what);
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    TANDEM_CHECK(ok(), error().what);
    return *std::get_if<0>(&state_);
  }
  T&& value() && { return std::move(value()); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    TANDEM_CHECK(!ok(), "error() of a Result that holds a value");
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  void value() const { TANDEM_CHECK(ok(), error_->what); }
  const Error& error() const {
    TANDEM_CHECK(!ok(), "error() of a Result that holds no error");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

namespace internal {
template <typename T>
T take(Result<T>& result) {
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}
}  // namespace internal

}  // namespace tandem

/// `auto x = TANDEM_TRY(f());` is f's value, or returns f's Error from the enclosing function.
#define TANDEM_TRY(...)                                            \
  __extension__({                                                  \
    auto tandem_try_result = (__VA_ARGS__);                        \
    if (!tandem_try_result.ok()) return tandem_try_result.error(); \
    ::tandem::internal::take(tandem_try_result);                   \
  })
