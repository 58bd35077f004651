// Rights that a node has no use for, given up at its start: what somebody who took it over could do with them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace terrace::node {

// What a node opens from its start on. Folders with all below them, or single files; what is not there is left out.
struct FileNeeds {
  std::vector<std::filesystem::path> read;
  std::vector<std::filesystem::path> write;  // and read: folders in which files are made, changed and replaced
  // Not empty: files are not restricted, for this reason ("the driver of --gpu opens files of its own").
  std::string all_because;
};

// From now on neither this process nor one that it started could gain rights, by set-user-ID programs or otherwise; it
// has no capability of root's, if it was started with any; and where the kernel has Landlock it can open nothing beyond
// `needs`, and start no program. Before any thread is started, since each has its own rights; what is open stays open.
// Gives what holds now, a line each, for the log and `status`. kIo: the kernel refuses what it should do, which a
// filter of system calls may be the reason of; the text names the call.
Result<std::vector<std::string>> give_up_privileges(const FileNeeds& needs);

// What the system itself needs read: libraries, devices of no content, /proc and /sys.
std::vector<std::filesystem::path> system_files();

bool has_root_rights();

}  // namespace terrace::node
