/** What went wrong, with a code that docs/errors.md explains. */
export declare class PlicaError extends Error {
  readonly code: string;
  constructor(code: string, message: string);
}

export type TypedArray =
  | Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array
  | BigInt64Array | BigUint64Array | Float32Array | Float64Array;

/** An input or output of a model; `dtype` is Plica's name of it. */
export interface Port {
  readonly name: string;
  readonly shape: readonly number[];
  readonly dtype: string;
  readonly length: number;
  readonly bytes: number;
}

/** A tensor that a model gives. */
export interface Tensor {
  readonly data: TypedArray;
  readonly shape: readonly number[];
  readonly dtype: string;
}

/** A compiled model. */
export declare class Model {
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  readonly target: string;
  /** Run the model on arrays by name, or in order. */
  run(given?: Record<string, TypedArray | number[]> | (TypedArray | number[])[]): Record<string, Tensor>;
  /** End the workers of a model with several threads. */
  close(): void;
  private constructor();
}

/** A compiled model on a GPU, in a page. */
export declare class GpuModel {
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  readonly target: string;
  run(given?: Record<string, TypedArray | number[]> | (TypedArray | number[])[]): Promise<Record<string, Tensor>>;
  private constructor();
}

/** The model in an artefact: a URL, a path in Node, a response, or the bytes themselves; several
 *  threads run one that was compiled for `wasm:threads`. */
export declare function load(
  source: string | URL | Response | ArrayBuffer | Uint8Array, options?: { threads?: number },
): Promise<Model | GpuModel>;
