// The page of GET /: chat and the tier view. page.html, page.css and the scripts of this folder are parts of the
// program; here they become one HTML text that needs nothing else.
#pragma once

#include <string>

namespace terrace::serve::page {

struct Page {
  std::string html;
  // Content-Security-Policy: this style and this script by their hashes, requests to the page's own server, and nothing
  // else; no HTML is ever made of text.
  std::string policy;
};

// Pure.
Page make_page();

}  // namespace terrace::serve::page
