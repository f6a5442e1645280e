"""wasm: modules of WebAssembly as artefacts hold them, and what runs them here and in pages."""
