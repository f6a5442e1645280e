// Helpers in WGSL: the meaning that `plica.ir.loop.scalar` states.  T is an integer type of W bits.

fn p_add_D(a: T, b: T) -> T { return FIT(a + b); }

fn p_sub_D(a: T, b: T) -> T { return FIT(a - b); }

fn p_mul_D(a: T, b: T) -> T { return FIT(a * b); }

fn p_floordiv_D(a: T, b: T) -> T {
  if (b == 0) { return 0; }
  if (b == T(-1)) { return FIT(T(0) - a); }
  let q = a / b;
  if (q * b != a && ((a < 0) != (b < 0))) { return q - 1; }
  return q;
}

fn p_floormod_D(a: T, b: T) -> T {
  if (b == 0 || b == T(-1)) { return 0; }
  let r = a % b;
  if (r != 0 && ((r < 0) != (b < 0))) { return r + b; }
  return r;
}

fn p_truncdiv_D(a: T, b: T) -> T {
  if (b == 0) { return 0; }
  if (b == T(-1)) { return FIT(T(0) - a); }
  return a / b;
}

fn p_fmod_D(a: T, b: T) -> T {
  if (b == 0 || b == T(-1)) { return 0; }
  return a % b;
}

fn p_power_D(a: T, b: T) -> T {
  if (b < 0) { return 0; }
  var r: T = 1;
  var x: T = a;
  for (var n: T = b; n > 0; n = n >> 1u) {
    if ((n & 1) != 0) { r = FIT(r * x); }
    x = FIT(x * x);
  }
  return r;
}

fn p_shl_D(a: T, b: T) -> T {
  if (b < 0 || b >= W) { return 0; }
  return FIT(a << u32(b));
}

fn p_shr_D(a: T, b: T) -> T {
  if (b < 0 || b >= W) { return select(T(0), T(-1), a < 0); }
  return a >> u32(b);
}

fn p_sign_D(a: T) -> T { return T(a > 0) - T(a < 0); }

fn p_abs_D(a: T) -> T { if (a < 0) { return FIT(T(0) - a); } return a; }

fn p_cast_D_f32(a: f32, low: f32, high: f32, least: T, greatest: T) -> T {
  if (p_isnan_f32(a)) { return 0; }
  if (a <= low) { return least; }
  if (a >= high) { return greatest; }
  return T(a);
}
