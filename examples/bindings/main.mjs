// The model `words` from Node: one row of numbers in, twelve scores out.
import { run } from "./words.mjs";

const x = Float32Array.from({ length: 36 }, (_, i) => (i % 7) / 7);
const { outOutput } = run(x);
console.log(outOutput.reduce((sum, each) => sum + each, 0).toFixed(6));
try {
  run(new Float32Array(35));
  process.exit(1);
} catch (error) {
  if (!(error instanceof TypeError)) throw error;
}
