// Whether this is a build with a sanitizer, for tests of what they cannot follow, or need more of.
#pragma once

namespace ucm::test {

#ifndef __has_feature
#define __has_feature(name) 0  // Clang's
#endif
#if __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace ucm::test
