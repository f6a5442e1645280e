"""The fold of programs into LLVM, and the toolchain that makes it native."""
