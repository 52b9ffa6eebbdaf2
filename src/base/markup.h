// Text in XML and HTML.
#pragma once

#include <string>
#include <string_view>

namespace ucm {

// As it has to stand between tags and in quoted attributes.
std::string escaped_markup(std::string_view text);

}  // namespace ucm
