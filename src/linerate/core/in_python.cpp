#include "linerate/core/in_python.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>
#include <vector>

#include "linerate/core/text.hpp"

namespace linerate {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

// Options that are keywords of a function in Python, each between blanks, in the order of the
// alphabet.
constexpr std::string_view kKeywords =
    " add-cost alone bandwidth batch budget classes cluster codec codecs coding collective "
    "cores cost-model compression-ratio current data-idle device device-speed epsilon "
    "exposed framework from gamma host-idle input largest latency least-gain line-rate link "
    "memory network noise preset ranks ranks-per-node scale second-order size step-time "
    "step-time-covers steps-to-target strategy threads training warm-up workload ";
// Options that say how to print are methods of the result.
constexpr std::array<Pair, 10> kMethods = {{{"all", "to_text(all=True)"},
                                            {"csv", "to_csv()"},
                                            {"dot", "to_dot()"},
                                            {"html", "save_html()"},
                                            {"json", "to_dict()"},
                                            {"output", "save()"},
                                            {"plan", "plan()"},
                                            {"plot", "to_plot()"},
                                            {"tasks", "to_text(tasks=True)"},
                                            {"timeline", "timeline()"}}};
// Verbs that are functions of the same name, but for import: that is a word of Python.
constexpr std::string_view kFunctions =
    " advise calibrate compare explain export import plan report whatif ";
// Verbs of the command alone: what is typed after them stays.
constexpr std::string_view kCommandOnly = " evaluate rehearse train ";
// Of linerate whatif and linerate advise: files that are called after what wrote them.
constexpr std::array<Pair, 8> kPhrases = {
    {{"whatif --json", "Predictions.save()"},
     {"advise --json", "Advice.save()"},
     {"linerate list strategies", "linerate.strategies()"},
     {"linerate list compressors", "linerate.compressors()"},
     {"linerate list cost-models", "linerate.cost_models()"},
     {"linerate list models", "linerate.models()"},
     {"linerate list networks", "linerate.networks()"},
     {"tools/mpirun -n 2 linerate calibrate ...", "mpirun -n 2 python program.py"}}};
constexpr std::array<Pair, 3> kLetters = {{{"c", "cluster"}, {"o", "output"}, {"w", "workload"}}};

template <std::size_t N>
std::optional<std::string_view> find(const std::array<Pair, N>& pairs, std::string_view key) {
  for (const auto& [from, to] : pairs)
    if (from == key) return to;
  return std::nullopt;
}

bool has_word(std::string_view words, std::string_view word) {
  return words.find(" " + std::string(word) + " ") != std::string_view::npos;
}

/// --step-time is step_time, and --from, a word of Python, is from_.
std::optional<std::string> keyword_of(std::string_view option) {
  std::string keyword(option);
  if (!has_word(kKeywords, option)) return std::nullopt;
  std::replace(keyword.begin(), keyword.end(), '-', '_');
  return keyword == "from" ? "from_" : keyword;
}

bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }

/// The longest beginning whose characters are those of a name.
std::string_view name_at(std::string_view text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_name);
  std::string_view name(text.begin(), end);
  while (name.ends_with('-')) name.remove_suffix(1);
  return name;
}

/// The word at the beginning, without what punctuates the sentence around it.
std::string_view word_at(std::string_view text) {
  std::string_view word = text.substr(0, text.find_first_of(" \n\t"));
  if (word.starts_with('"')) {
    const std::size_t end = text.find('"', 1);
    return end == std::string_view::npos ? std::string_view() : text.substr(0, end + 1);
  }
  while (!word.empty() && (std::string_view(".,;:`").find(word.back()) != std::string_view::npos ||
                           (word.ends_with(')') && word.find('(') == std::string_view::npos)))
    word.remove_suffix(1);
  return word;
}

/// Whether a word after an option is its value and not the sentence going on: N, RATE, "ring",
/// zoo:lenet, agarwal2021, 10Gbit/s, log.csv.
bool is_value(std::string_view word) {
  if (word.empty() || word.starts_with('-') || word.starts_with('(')) return false;
  if (word.starts_with('"') || std::all_of(word.begin(), word.end(), is_upper)) return true;
  return std::any_of(word.begin(), word.end(), [](unsigned char c) { return std::isalpha(c); }) &&
         word.find_first_of("0123456789:/.+(={") != std::string_view::npos;
}

/// As source text: a placeholder stays as it is.
std::string as_source(std::string_view value) {
  if (value.starts_with('"') || std::all_of(value.begin(), value.end(), is_upper))
    return std::string(value);
  return "\"" + std::string(value) + "\"";
}

/// One pass over a text, from left to right.
class Translation {
 public:
  explicit Translation(std::string_view text) : left_(text) {}

  std::string run() {
    while (!left_.empty())
      if (!(begins_word() && (phrase() || call() || option() || letter()))) copy(1);
    return std::move(out_);
  }

 private:
  struct Typed {  // an option as it is typed
    std::string name, value;
    bool is_letter = false;
  };

  bool begins_word() const {
    return out_.empty() ||
           std::string_view(" \n\t(`\"'").find(out_.back()) != std::string_view::npos;
  }
  bool copy(std::size_t length) { return put(std::string(left_.substr(0, length)), length); }
  bool put(const std::string& text, std::size_t instead_of) {
    out_ += text;
    left_.remove_prefix(instead_of);
    return true;
  }

  bool phrase() {
    for (const auto& [from, to] : kPhrases)
      if (left_.starts_with(from)) return put(std::string(to), from.size());
    return false;
  }

  /// What is typed at `at`, which moves past it.
  std::optional<Typed> typed(std::size_t& at) const {
    Typed found;
    std::string_view text = left_.substr(at);
    if (text.starts_with("--"))
      found.name = name_at(text.substr(2));
    else if (text.size() > 2 && text[0] == '-' && (text[2] == ' ' || text[2] == ':') &&
             find(kLetters, text.substr(1, 1)))
      found = {
          text.substr(1, 1) == "o" ? "output" : std::string(*find(kLetters, text.substr(1, 1))), "",
          true};
    if (found.name.empty()) return std::nullopt;
    at += found.is_letter ? 2 : 2 + found.name.size();
    text = left_.substr(at);
    if (text.starts_with(' ') || text.starts_with('=')) {
      const std::string_view word = word_at(text.substr(1));
      if (is_value(word) || (text.starts_with('=') && !word.empty()))
        found.value = word, at += 1 + word.size();
    }
    return found;
  }

  /// A verb with options is one call in Python, or the command as it is.
  bool call() {
    std::size_t at = 0;
    if (left_.starts_with("linerate ")) at = 9;
    if (left_.starts_with("linerate-torch ")) at = 15;
    const std::string_view verb = name_at(left_.substr(at));
    at += verb.size();
    if (verb == "import" && out_.ends_with("from ")) return false;  // a line of Python
    std::string function;                                           // empty: Python has none of it
    if (at != 15 + verb.size() && has_word(kFunctions, verb))
      function = verb == "import" ? "import_workload" : verb;
    if (function.empty() && !has_word(kCommandOnly, verb) && !left_.starts_with("linerate"))
      return false;

    std::vector<std::string> arguments;
    std::string then;
    bool known = !function.empty();
    for (std::size_t end; left_.substr(at).starts_with(' '); at = end) {
      end = at + 1;
      const std::string_view word = word_at(left_.substr(end));
      if (const auto option = typed(end); !option) {
        end += word.size();
        const bool helps = verb == "whatif" && left_.substr(end).starts_with(" --help");
        if (helps) return put("help(linerate.whatif_collective)", end + 7);
        if (!arguments.empty() || !left_.starts_with("linerate") || !is_value(word)) break;
        arguments.push_back(as_source(word));
      } else if (option->name == "help" && known) {
        return put("help(linerate." + function + ")", end);
      } else if (option->name == "output") {
        then += ".save(" + (option->value.empty() ? "" : as_source(option->value)) + ")";
      } else if (const auto method = find(kMethods, option->name); method) {
        then += "." + std::string(*method);
      } else {
        const auto keyword = keyword_of(option->name);
        known = known && keyword;
        arguments.push_back(keyword.value_or("") + "=" +
                            (option->value.empty() ? "..." : as_source(option->value)));
      }
    }
    if (!known) return copy(at);
    if (arguments.empty() && then.empty() && !left_.starts_with("linerate")) return false;
    return put("linerate." + function + "(" + join(arguments, ", ") + ")" + then, at);
  }

  bool option() {
    if (!left_.starts_with("--")) return false;
    std::size_t at = 0;
    const auto found = typed(at);
    if (!found) return false;
    if (const auto method = find(kMethods, found->name); method)
      return put(std::string(*method), 2 + found->name.size());
    const auto keyword = keyword_of(found->name);
    if (!keyword) return false;
    return put(*keyword + "=" + (found->value.empty() ? "" : as_source(found->value)), at);
  }

  /// -c FILE and its like; alone they may be those of another program.
  bool letter() {
    std::size_t at = 0;
    const auto found = typed(at);
    if (!found || !found->is_letter) return false;
    if (found->value.empty())
      return left_.substr(at).starts_with(':') && put(found->name + "=", at);
    if (found->name == "output") return put("save(" + as_source(found->value) + ")", at);
    return put(found->name + "=" + as_source(found->value), at);
  }

  std::string_view left_;
  std::string out_;
};

}  // namespace

std::string in_python(std::string_view text) {
  if (text.find('-') == std::string_view::npos && text.find("linerate ") == std::string_view::npos)
    return std::string(text);
  return Translation(text).run();
}

}  // namespace linerate
