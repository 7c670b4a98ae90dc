#include "text/jinja_pool.h"

#include <algorithm>
#include <utility>

#include "text/template_input.h"

namespace tandem::text {

// jinja_helper.py, put into the binary by CMakeLists.txt.
extern const char kJinjaHelperSource[];

namespace {

// Python with Jinja takes 25 MiB; a prompt of 8 MiB about 20 times its size while it is rendered.
constexpr size_t kAddressSpaceBytes = size_t{1} << 30;

// Starting Python takes 0.1 s on an idle machine; a loaded one must not fail because of it.
constexpr std::chrono::seconds kStartTime{20};

/// The Error that an answer of the helper is, or nothing.
std::optional<Error> error_in(const Json& answer, const ChatTemplate::Options& options) {
  const auto error = answer.find("error");
  if (error == answer.end()) return std::nullopt;
  const std::string kind = error->value("kind", "");
  const std::string what = error->value("what", "");
  if (kind == "template") return make_error(Code::kInvalidArgument, "chat template: " + what);
  if (kind == "setup") {
    return make_error(Code::kFailedPrecondition, "cannot render chat templates: " + what);
  }
  // Both are faults of the request: the same one would fail again, however idle the server is.
  if (kind == "output") {
    return make_error(Code::kInvalidArgument, "chat template: the rendered prompt is longer than " +
                                                  std::to_string(options.output_bytes_max) +
                                                  " bytes; send less text");
  }
  return make_error(Code::kInvalidArgument,
                    "chat template: rendering needs more than " +
                        std::to_string(kAddressSpaceBytes >> 20) +
                        " MiB of memory, which is all it may use; send less text, or use a "
                        "template that does not multiply it");
}

Error with_advice(Error error, const ChatTemplate::Options& options) {
  if (error.code == Code::kDeadlineExceeded) {
    error.what = "rendering takes longer than " + std::to_string(options.deadline_ms) +
                 " ms; shorten the conversation or check the template for endless loops";
  }
  return with_context(std::move(error), "chat template");
}

Error damaged_answer() {
  return make_error(Code::kInternal, "chat template: damaged answer of the template process");
}

Result<RenderedPrompt> read_prompt(const Json& answer) {
  const auto text = answer.find("text");
  const auto runs = answer.find("runs");
  if (text == answer.end() || !text->is_string() || runs == answer.end() || !runs->is_array()) {
    return damaged_answer();
  }
  const std::string_view whole = text->get_ref<const std::string&>();
  bool from_client = answer.value("first_from_client", true);
  RenderedPrompt prompt;
  size_t position = 0;
  for (const Json& run : *runs) {
    if (!run.is_number_unsigned() || run.get<size_t>() > whole.size() - position) {
      return damaged_answer();
    }
    prompt.spans.push_back({std::string(whole.substr(position, run.get<size_t>())), from_client});
    position += run.get<size_t>();
    from_client = !from_client;
  }
  if (position != whole.size()) return damaged_answer();
  return prompt;
}

}  // namespace

Result<std::unique_ptr<ChatTemplate>> JinjaPool::create(Options options) {
  if (options.processes_count < 1 || options.deadline_ms < 1) {
    return make_error(Code::kInvalidArgument,
                      "a chat template needs at least one process and a deadline of 1 ms");
  }
  Json special_tokens = Json::object();
  if (!options.special_tokens_json.empty()) {
    special_tokens = TANDEM_TRY(parse_json(options.special_tokens_json, "special tokens"));
  }
  if (!special_tokens.is_object()) {
    return make_error(Code::kInvalidArgument, "special tokens must be a JSON object");
  }
  auto pool =
      std::unique_ptr<JinjaPool>(new JinjaPool(std::move(options), std::move(special_tokens)));
  pool->free_places_.back() = TANDEM_TRY(pool->start_process());
  return std::unique_ptr<ChatTemplate>(std::move(pool));
}

JinjaPool::JinjaPool(Options options, Json special_tokens)
    : options_(std::move(options)), special_tokens_(std::move(special_tokens)) {
  free_places_.resize(static_cast<size_t>(options_.processes_count));
}

JinjaPool::Deadline JinjaPool::deadline_from_now() const {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.deadline_ms);
}

size_t JinjaPool::answer_bytes_max() const {
  // In JSON a control character takes six bytes, and a run of one byte two more.
  return 8 * options_.output_bytes_max + 65536;
}

Result<HelperProcess> JinjaPool::start_process() const {
  const Json setup = {{"template", options_.source},
                      {"special_tokens", special_tokens_},
                      {"limits",
                       {{"address_space_bytes", kAddressSpaceBytes},
                        {"processor_s", options_.deadline_ms / 1000 + 1},
                        {"output_bytes", options_.output_bytes_max}}}};
  const Deadline deadline =
      std::max(deadline_from_now(), std::chrono::steady_clock::now() + kStartTime);
  HelperProcess process = TANDEM_TRY(HelperProcess::start(kJinjaHelperSource, deadline));
  auto reply = process.exchange(dump_json(setup), deadline, answer_bytes_max());
  if (!reply.ok()) return with_advice(reply.error(), options_);
  const Json answer = Json::parse(*reply, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) return damaged_answer();
  if (auto error = error_in(answer, options_)) return *error;
  return process;
}

Result<std::optional<HelperProcess>> JinjaPool::take_place(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!place_is_free_.wait_until(lock, deadline, [&] { return !free_places_.empty(); })) {
    return make_error(Code::kResourceExhausted,
                      "chat template: all " + std::to_string(options_.processes_count) +
                          " template processes stayed busy; retry later or allow more");
  }
  // Started processes are used before new ones are started.
  auto place = std::find_if(free_places_.begin(), free_places_.end(),
                            [](const auto& process) { return process.has_value(); });
  if (place == free_places_.end()) --place;
  std::optional<HelperProcess> process = std::move(*place);
  free_places_.erase(place);
  return process;
}

void JinjaPool::return_place(std::optional<HelperProcess> process) {
  {
    const std::lock_guard lock(mutex_);
    free_places_.push_back(std::move(process));
  }
  place_is_free_.notify_one();
}

Result<RenderedPrompt> JinjaPool::render(const ChatInput& input) {
  const TemplateInput prepared = TANDEM_TRY(prepare_template_input(input));
  Json request = Json::object();
  request["messages"] = prepared.messages;
  request["tools"] = prepared.tools;
  request["add_generation_prompt"] = prepared.add_generation_prompt;
  request["variables"] = prepared.variables;
  const std::string request_text = dump_json(request);

  std::optional<HelperProcess> process = TANDEM_TRY(take_place(deadline_from_now()));
  Result<RenderedPrompt> prompt = render_with(process, request_text);
  return_place(std::move(process));
  if (!prompt.ok()) return prompt;
  TANDEM_TRY(cut_continued(prepared, *prompt));
  return prompt;
}

Result<RenderedPrompt> JinjaPool::render_with(std::optional<HelperProcess>& process,
                                              const std::string& request) const {
  if (process && !process->is_idle()) process.reset();
  if (!process) process = TANDEM_TRY(start_process());
  auto reply = process->exchange(request, deadline_from_now(), answer_bytes_max());
  if (!reply.ok()) {
    process.reset();
    return with_advice(reply.error(), options_);
  }
  const Json answer = Json::parse(*reply, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) {
    process.reset();
    return damaged_answer();
  }
  if (auto error = error_in(answer, options_)) {
    // After an exhausted address space Python may be left in any state.
    const std::string kind = answer["error"].value("kind", "");
    if (kind != "template" && kind != "setup") process.reset();
    return *error;
  }
  return read_prompt(answer);
}

}  // namespace tandem::text
