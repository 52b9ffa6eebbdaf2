// Whether this is a thread-sanitized build, for tests of what the sanitizer cannot follow.
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

}  // namespace ucm::test
