// Private: what launchers, schedulers and log collectors write before the lines of a program.
#pragma once

#include <string>
#include <string_view>

namespace linerate::bench_logs {

/// The line without its labels, however many. Labels are "[1,0]<stdout>:" (mpirun), "0: " (srun
/// -l), "[0] " (hydra), "(head, rank=0, pid=7) " (Ray), "node1: " (pdsh) and "name-1 | " (compose).
/// Time stamps are labels, too, and so are the words between a time stamp and a name with a colon.
/// A number is never taken for a label, since it may be the first cell of a row.
std::string_view without_label(std::string_view line);
/// Launchers that label every write of a program label the parts of a row, too: "[0] 1024 256
/// float[0] 12.5". The line without its label, and with a blank for each repetition of it in
/// brackets.
std::string without_repeated_label(std::string_view line);

}  // namespace linerate::bench_logs
