// The files of the page as the build found them: cmake/EmbedText.cmake writes the functions.
#pragma once

#include <string>

namespace terrace::serve::page::embedded {

std::string html();    // page.html, with marks for the other two
std::string style();   // page.css
std::string script();  // the scripts, one after the other

}  // namespace terrace::serve::page::embedded
