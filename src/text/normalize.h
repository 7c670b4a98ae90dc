#pragma once

#include <string>
#include <string_view>

namespace tandem::text {

/// Normalisation Form C by the Unicode version of the `tokenizers` library. Linear in the text
/// except for runs of combining marks, which are sorted. Requires valid UTF-8.
std::string to_nfc(std::string_view text);

}  // namespace tandem::text
