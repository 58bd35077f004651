// What is said when a mapped file was cut short under the program.
#pragma once

namespace terrace::gguf {

// From now on a read behind the end of a mapped file (SIGBUS: another program has cut the file, or its disk fails) puts
// a line on stderr that names the file, and then ends the process by that signal as it would have without. For main(),
// once per process, before threads are started; nothing is kept: which file it is, the system is asked at that moment.
void explain_mapping_faults();

}  // namespace terrace::gguf
