#include "model/model_files.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "io/file.h"
#include "model/eos_ids.h"
#include "model/json_fields.h"

namespace tandem::model {
namespace {

// Files with long lists of unquantised modules reach hundreds of KiB.
constexpr size_t kConfigBytesMax = size_t{16} << 20;

std::optional<float> narrow(std::optional<double> value) {
  if (!value) return std::nullopt;
  return static_cast<float>(*value);
}

Result<void> check_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!io::path_exists(folder)) {
    return make_error(Code::kNotFound, "model folder " + folder.string() + " does not exist");
  }
  if (!std::filesystem::is_directory(folder, ignored)) {
    return make_error(Code::kInvalidArgument,
                      folder.string() + " is not a folder; name the folder that holds config.json");
  }
  if (!io::path_exists(folder / "config.json")) {
    return make_error(Code::kNotFound, folder.string() +
                                           " holds no config.json; name a model folder in Hugging "
                                           "Face layout");
  }
  return {};
}

/// Reads `folder / name` and parses it; errors name the file.
template <typename Parse>
auto parse_file(const std::filesystem::path& path, Parse parse) -> decltype(parse("")) {
  const std::string text = TANDEM_TRY(io::read_file(path, kConfigBytesMax));
  auto parsed = parse(std::string_view(text));
  if (!parsed.ok()) return with_context(parsed.error(), path.string());
  return parsed;
}

}  // namespace

Result<GenerationDefaults> parse_generation_config(std::string_view json, int64_t vocab_size) {
  const Json document = TANDEM_TRY(parse_strict_json(json));
  if (!document.is_object()) {
    return make_error(Code::kInvalidArgument,
                      "a generation config is a JSON object, not " + json_excerpt(document));
  }
  const JsonFields fields(document);
  GenerationDefaults defaults;
  defaults.temperature = narrow(TANDEM_TRY(fields.number("temperature", {0, 100})));
  defaults.top_p = narrow(TANDEM_TRY(fields.number("top_p", {1e-6, 1})));
  defaults.min_p = narrow(TANDEM_TRY(fields.number("min_p", {0, 1})));
  defaults.repetition_penalty =
      narrow(TANDEM_TRY(fields.number("repetition_penalty", {1e-3, 100})));
  // -1 is how some files say "all"; here that is 0.
  const std::optional<int64_t> top_k = TANDEM_TRY(fields.integer("top_k", {-1, INT32_MAX}));
  if (top_k) defaults.top_k = static_cast<int32_t>(std::max<int64_t>(*top_k, 0));
  if (!TANDEM_TRY(fields.boolean("do_sample")).value_or(true)) defaults.temperature = 0.0f;
  defaults.eos_token_ids = TANDEM_TRY(parse_eos_ids(fields, vocab_size));
  return defaults;
}

Result<ModelFiles> ModelFiles::open(const std::filesystem::path& folder) {
  TANDEM_TRY(check_folder(folder));
  ModelFiles files;
  files.folder = folder;
  files.config = TANDEM_TRY(parse_file(folder / "config.json", parse_config));
  if (io::path_exists(folder / "generation_config.json")) {
    files.generation =
        TANDEM_TRY(parse_file(folder / "generation_config.json", [&](std::string_view text) {
          return parse_generation_config(text, files.config.vocab_size);
        }));
  }
  files.stop_token_ids = files.generation.eos_token_ids;
  files.stop_token_ids.insert(files.stop_token_ids.end(), files.config.eos_token_ids.begin(),
                              files.config.eos_token_ids.end());
  std::sort(files.stop_token_ids.begin(), files.stop_token_ids.end());
  files.stop_token_ids.erase(std::unique(files.stop_token_ids.begin(), files.stop_token_ids.end()),
                             files.stop_token_ids.end());

  const auto locate = [&](const char* name) -> std::optional<std::filesystem::path> {
    if (!io::path_exists(folder / name)) return std::nullopt;
    return folder / name;
  };
  files.tokenizer = locate("tokenizer.json");
  files.tokenizer_config = locate("tokenizer_config.json");
  files.chat_template = locate("chat_template.jinja");
  return files;
}

}  // namespace tandem::model
