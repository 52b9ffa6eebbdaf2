// CMake compiles a precompiled header only with a source file: this one (tests/CMakeLists.txt).
