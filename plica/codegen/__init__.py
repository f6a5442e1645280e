"""codegen: lowering, then the final folds: llvm, cuda, accel."""
