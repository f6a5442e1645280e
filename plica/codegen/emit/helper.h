// Helpers of C-like targets, each a function of the types T (and F); T(x) is a cast.

T p_floordiv(T a, T b) {
  if (b == 0) return 0;
  if (T(-1) < T(0) && b == T(-1)) return T(0ULL - (unsigned long long)a);
  T q = a / b;
  return q * b != a && ((a < 0) != (b < 0)) ? q - 1 : q;
}

T p_floormod(T a, T b) {
  if (b == 0 || (T(-1) < T(0) && b == T(-1))) return 0;
  T r = a % b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}

T p_fmod(T a, T b) {
  return b == 0 || (T(-1) < T(0) && b == T(-1)) ? T(0) : T(a % b);
}

T p_truncdiv(T a, T b) {
  if (b == 0) return 0;
  return T(-1) < T(0) && b == T(-1) ? T(0ULL - (unsigned long long)a) : T(a / b);
}

T p_floormod_float(T a, T b) {
  T r = fmod(a, b);
  if (r == 0) return copysign(T(0), b);
  return (r < 0) != (b < 0) ? r + b : r;
}

T p_floordiv_float(T a, T b) {
  if (b == 0) return a / b;
  T r = fmod(a, b);
  T q = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) q -= T(1);
  if (q == 0) return copysign(T(0), a / b);
  T f = floor(q);
  return q - f > T(0.5) ? f + T(1) : f;
}

T p_add(T a, T b) { return T((unsigned long long)a + (unsigned long long)b); }

T p_sub(T a, T b) { return T((unsigned long long)a - (unsigned long long)b); }

T p_mul(T a, T b) { return T((unsigned long long)a * (unsigned long long)b); }

T p_power(T a, T b) {
  if (b < 0) return 0;
  unsigned long long r = 1, x = (unsigned long long)a;
  for (unsigned long long n = (unsigned long long)b; n; n >>= 1, x *= x)
    if (n & 1) r *= x;
  return T(r);
}

T p_shl(T a, T b) {
  unsigned long long n = (unsigned long long)b;
  return n < 8 * sizeof(T) ? T((unsigned long long)a << n) : T(0);
}

T p_shr(T a, T b) {
  unsigned long long n = (unsigned long long)b, most = 8 * sizeof(T);
  if (T(-1) < T(0)) return n < most ? T(a >> n) : T(a < 0 ? -1 : 0);
  return n < most ? T(a >> n) : T(0);
}

T p_cast(F a, F low, F high, T least, T greatest) {
  if (a != a) return 0;
  return a <= low ? least : a >= high ? greatest : T(a);
}

T p_sign(T a) { return a > T(0) ? T(1) : a < T(0) ? T(-1) : a == T(0) ? T(0) : a; }

T p_abs(T a) { return a < 0 ? T(0ULL - (unsigned long long)a) : a; }
