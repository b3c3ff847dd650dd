#include "linerate/trace/job/rank_in_name.hpp"

#include <string>

#include "linerate/core/text.hpp"
#include "linerate/trace/input/decimal.hpp"

namespace linerate::trace {

int rank_in_name(std::string_view path) {
  const std::size_t slash = path.find_last_of('/');
  const std::string name = lowered(slash == std::string_view::npos ? path : path.substr(slash + 1));
  for (const std::string_view word : {"rank", "worker"})
    for (std::size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
      std::size_t i = at + word.size();
      if (i < name.size() && (name[i] == '-' || name[i] == '_' || name[i] == '=' || name[i] == '.'))
        ++i;
      std::size_t end = i;
      while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
      if (end > i && end - i < 8)
        return static_cast<int>(*parse_whole(std::string_view(name).substr(i, end - i)));
    }
  return -1;
}

}  // namespace linerate::trace
