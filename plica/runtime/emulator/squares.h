// What the threads of a warp hold of squares of 8 x 8 elements is as the PTX manual has it.
template <bool T> void p_load_squares(unsigned int* r, const unsigned short* from) {
  Warp& warp = warps[self->warp];
  int lane = self->lane, g = lane / 4, t = lane % 4;
  warp.from[lane] = from;
  warp.all.arrive_and_wait();
  for (int n = 0; n < 4; ++n) {
    const unsigned short* const* row = warp.from + 8 * n;
    unsigned int low = T ? row[2 * t][g] : row[g][2 * t];
    unsigned int high = T ? row[2 * t + 1][g] : row[g][2 * t + 1];
    r[n] = low | high << 16;
  }
  warp.all.arrive_and_wait();
}
template <float (*F)(unsigned short)>
void multiply_squares(float& w, float& x, float& y, float& z, const unsigned int* a,
                        const unsigned int* b) {
  Warp& warp = warps[self->warp];
  int lane = self->lane, g = lane / 4, t = lane % 4;
  for (int n = 0; n < 4; ++n) warp.held[lane][n] = a[n];
  for (int n = 0; n < 2; ++n) warp.held[lane][4 + n] = b[n];
  warp.all.arrive_and_wait();
  float* result[2][2] = {{&w, &x}, {&y, &z}};
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) for (int k = 0; k < 16; ++k) {
    unsigned int left = warp.held[g * 4 + k % 8 / 2][i + k / 8 * 2];
    unsigned int right = warp.held[(2 * t + j) * 4 + k % 8 / 2][4 + k / 8];
    int odd = k % 2 * 16;
    *result[i][j] += F(left >> odd & 0xffff) * F(right >> odd & 0xffff);
  }
  warp.all.arrive_and_wait();
}
static auto p_multiply_squares_f16 = multiply_squares<from_half>;
static auto p_multiply_squares_bf16 = multiply_squares<from_bfloat>;
template <typename A, typename B>
void multiply_byte_squares(int& w, int& x, int& y, int& z, const unsigned int* a, const unsigned int* b) {
  Warp& warp = warps[self->warp];
  int lane = self->lane, g = lane / 4, t = lane % 4;
  for (int n = 0; n < 4; ++n) warp.held[lane][n] = a[n];
  for (int n = 0; n < 2; ++n) warp.held[lane][4 + n] = b[n];
  warp.all.arrive_and_wait();
  int* result[2][2] = {{&w, &x}, {&y, &z}};
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) for (int k = 0; k < 32; ++k) {
    unsigned int left = warp.held[g * 4 + k % 16 / 4][i + k / 16 * 2];
    unsigned int right = warp.held[(2 * t + j) * 4 + k % 16 / 4][4 + k / 16];
    int at = k % 4 * 8;
    *result[i][j] += (int)(A)(left >> at & 0xff) * (int)(B)(right >> at & 0xff);
  }
  warp.all.arrive_and_wait();
}
static auto p_multiply_squares_i8_i8 = multiply_byte_squares<signed char, signed char>;
static auto p_multiply_squares_i8_u8 = multiply_byte_squares<signed char, unsigned char>;
static auto p_multiply_squares_u8_i8 = multiply_byte_squares<unsigned char, signed char>;
static auto p_multiply_squares_u8_u8 = multiply_byte_squares<unsigned char, unsigned char>;
inline void p_multiply_squares_tf32(float& w, float& x, float& y, float& z, const unsigned int* a, const unsigned int* b) {
  Warp& warp = warps[self->warp];
  int lane = self->lane, g = lane / 4, t = lane % 4;
  for (int n = 0; n < 4; ++n) warp.held[lane][n] = a[n] & 0xffffe000u;
  for (int n = 0; n < 2; ++n) warp.held[lane][4 + n] = b[n] & 0xffffe000u;
  warp.all.arrive_and_wait();
  float* result[2][2] = {{&w, &x}, {&y, &z}};
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) for (int k = 0; k < 8; ++k) {
    unsigned int left = warp.held[g * 4 + k % 4][i + k / 4 * 2];
    unsigned int right = warp.held[(2 * t + j) * 4 + k % 4][4 + k / 4];
    *result[i][j] += __uint_as_float(left) * __uint_as_float(right);
  }
  warp.all.arrive_and_wait();
}
