"""wasm: WebAssembly by LLVM with lanes of 128 bits, for browsers, Node and wasmtime."""
