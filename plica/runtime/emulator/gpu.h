// The words of CUDA on a processor: threads of a block are fibres, each runs until it waits for others.
#include <cmath>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>
#include <algorithm>
#include <ucontext.h>
using std::min; using std::max; using std::signbit;
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __align__(n) alignas(n)
#define __shared__
#define __restrict__
// Part by part: what watches accesses hears nothing of a whole that is copied.
struct uint2 {
  unsigned int x, y;
  uint2& operator=(const uint2& a) { x = a.x, y = a.y; return *this; }
};
struct alignas(16) uint4 {
  unsigned int x, y, z, w;
  uint4& operator=(const uint4& a) { x = a.x, y = a.y, z = a.z, w = a.w; return *this; }
};
struct dim { int x, y, z; };
struct Copy { void* to; const void* from; };
// Tiles under way: each is fetched when the thread that began it waits: nobody has it sooner.  The
// lowest bit of a counter changes once all bytes that it expects, which the others say, are there.
struct Fetch { void* to; const unsigned long long* map; unsigned long long* counted; int at[5]; };
// A thread: where it is, and what it has under way.  Products are in groups.
struct Fibre {
  jmp_buf here; ucontext_t first; bool begun = false, done = true;
  dim thread; int warp, lane;
  std::vector<Copy> copies; std::vector<std::vector<Copy>> under_way;
  std::vector<std::function<void()>> multiplied;
  std::vector<std::vector<std::function<void()>>> multiplying;
  std::vector<Fetch> fetching;
};
static dim blockIdx, blockDim;
static int block_number;
// Where tiles under way are counted: what threads wait by without a barrier.
static const unsigned char *counters, *counters_end;
static Fibre* self;
#define threadIdx (self->thread)
static jmp_buf turn_taker;
static long long progress;
static bool eager;
static void pass() { if (!_setjmp(self->here)) _longjmp(turn_taker, 1); }
struct Gate {
  int size, come = 0; long long opened = 0;
  void arrive_and_wait() {
    long long now = opened;
    ++progress;
    if (++come == size) { come = 0; ++opened; return; }
    while (opened == now) pass();
  }
};
static Gate block_gate;
static void __syncthreads() { block_gate.arrive_and_wait(); }
static float __int_as_float(unsigned int a) { float r; std::memcpy(&r, &a, 4); return r; }
static float __fmul_rn(float a, float b) { return a * b; }
static double __dmul_rn(double a, double b) { return a * b; }
static double __longlong_as_double(long long a) { double r; std::memcpy(&r, &a, 8); return r; }
static unsigned int __float_as_uint(float a) { unsigned int r; std::memcpy(&r, &a, 4); return r; }
static float __uint_as_float(unsigned int a) { return __int_as_float(a); }
static int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
alignas(1024) unsigned char shared_memory[1 << 18];
static unsigned long long __cvta_generic_to_shared(const void* at) {
  return (const unsigned char*)at - shared_memory;
}
#ifdef __ARM_FP16_FORMAT_IEEE
typedef __fp16 Half;  // C++ of g++ 12 has no other name for it there
#else
typedef _Float16 Half;
#endif
static float from_half(unsigned short a) { Half r; std::memcpy(&r, &a, 2); return (float)r; }
static unsigned short to_half(float a) {
  Half h = (Half)a; unsigned short r; std::memcpy(&r, &h, 2); return r;
}
alignas(16) static const unsigned char nothing[16] = {};
static void (*hears)(const void*, size_t, bool);  // who is told of what a thread has copied for it
static void copy(Copy of) {
  if (hears) hears(of.to, 16, true);
  std::memcpy(of.to, of.from, 16);
}
static void begin(Copy of) {
  if (eager) copy(of);
  else self->copies.push_back(of);
}
static void copy_first() {
  for (Copy each : self->under_way.front()) copy(each);
  self->under_way.erase(self->under_way.begin());
}
static float from_bfloat(unsigned short a) { return __int_as_float((unsigned int)a << 16); }
static unsigned short to_bfloat(float a) {  // to the nearest, to even where there are two
  unsigned int r; std::memcpy(&r, &a, 4);
  return a != a ? 0x7fff : (r + 0x7fff + (r >> 16 & 1)) >> 16;
}
static void fetch(const Fetch& of) {
  int rank = of.map[1], size = of.map[2], count = 1;
  for (int n = 0; n < rank; ++n) count *= of.map[3 + n];
  for (int e = 0; e < count; ++e) {
    long long from = 0;
    bool inside = true;
    for (int n = 0, rest = e; n < rank; ++n) {
      long long place = of.at[n] + rest % (int)of.map[3 + n];
      inside = inside && place >= 0 && place < (long long)of.map[13 + n];
      from += place * (long long)of.map[8 + n];
      rest /= (int)of.map[3 + n];
    }
    long long to = e * size, row = to / 128 % 8;
    if (inside) std::memcpy((char*)of.to + (to ^ row << 4), (const char*)of.map[0] + from, size);
    else std::memset((char*)of.to + (to ^ row << 4), 0, size);
  }
  *of.counted -= 2ull * count * size;
  if (*of.counted < 2) *of.counted ^= 1;
  ++progress;
}
static void begin(const Fetch& of) { if (eager) fetch(of); else self->fetching.push_back(of); }
struct Warp { Gate all; const unsigned short* from[32]; unsigned int held[32][6]; };
static Warp warps[32];
template <typename T> static T __shfl_xor_sync(unsigned int, T value, int mask) {
  Warp& warp = warps[self->warp];
  std::memcpy(&warp.held[self->lane][0], &value, sizeof value);
  warp.all.arrive_and_wait();
  std::memcpy(&value, &warp.held[self->lane ^ mask][0], sizeof value);
  warp.all.arrive_and_wait();
  return value;
}
template <typename T> static T __shfl_xor(T value, int mask, int) {
  return __shfl_xor_sync(0, value, mask);
}
template <typename A> static A given(void* of) {
  if constexpr (std::is_reference_v<A>) return *(std::remove_reference_t<A>*)of;
  else return (A)of;
}
// Fibres are made once; each does the work of a thread after another.
static std::vector<Fibre*> fibres;
static std::function<void()> work;
static void live() { for (;;) { work(); self->done = true; ++progress; pass(); } }
static Fibre* fibre(int number) {
  while ((int)fibres.size() <= number) {
    Fibre* made = new Fibre;
    getcontext(&made->first);
    made->first.uc_stack.ss_sp = std::malloc(made->first.uc_stack.ss_size = 1 << 17);
    makecontext(&made->first, live, 0);
    fibres.push_back(made);
  }
  return fibres[number];
}
static void resume(Fibre* of) {
  self = of;
  if (_setjmp(turn_taker)) return;
  if (of->begun) _longjmp(of->here, 1);
  of->begun = true;
  setcontext(&of->first);
}
// All threads of a block; what is left over waits for others who do not come.
static int run_block(dim size, bool backward) {
  int count = size.x * size.y * size.z, left = count;
  std::memset(shared_memory, 0xff, sizeof shared_memory);
  block_gate = {count};
  blockDim = size;
  for (int n = 0; n * 32 < count; ++n) warps[n].all = {min(32, count - n * 32)};
  for (int n = 0; n < count; ++n) {
    Fibre& of = *fibre(n);
    of.thread = {n % size.x, n / size.x % size.y, n / size.x / size.y};
    of.warp = n / 32, of.lane = n % 32, of.done = false;
    of.copies.clear(), of.under_way.clear(), of.fetching.clear();
    of.multiplied.clear(), of.multiplying.clear();
  }
  for (long long before = -1; left && before != progress;) {
    before = progress;
    left = 0;
    for (int n = 0; n < count; ++n) {
      Fibre* of = fibres[backward ? count - 1 - n : n];
      if (!of->done) { resume(of); left += !of->done; }
    }
  }
  if (left) fibres.clear();
  return left;
}

// Where descriptions of matrices say that an element is: rows of 128 bytes are swizzled; neighbours
// are terms, or with `T` rows, 64 of which are then as far from the next 64 as the first step says.
template <bool T> static float held(unsigned long long of, int row, int term, auto convert) {
  long long far = (of >> 16 & 0x3fff) << 4, near = (of >> 32 & 0x3fff) << 4;
  long long at = (of & 0x3fff) << 4;
  if (T) at += row / 64 * far + term / 8 * near + term % 8 * 128 + row % 64 * 2;
  else at += row / 8 * near + row % 8 * 128 + term * 2;
  at ^= (at >> 7 & 7) << 4;
  return convert(*(unsigned short*)(shared_memory + at));
}
template <int AT, int BT, float (*F)(unsigned short)>
void multiply(float* c, unsigned long long a, unsigned long long b, int width) {
  int warp = self->warp % 4, g = self->lane / 4, t = self->lane % 4;
  auto product = [=] {
    for (int half = 0; half < 2; ++half) for (int j = 0; j < width / 8; ++j)
      for (int pair = 0; pair < 2; ++pair) for (int k = 0; k < 16; ++k)
        c[half * width / 4 + j * 2 + pair] +=
            held<AT>(a, 16 * warp + 8 * half + g, k, F) * held<BT>(b, 8 * j + 2 * t + pair, k, F);
  };
  if (eager) product();
  else self->multiplied.push_back(product);
}
// The same of bytes, whose neighbours are terms on both sides.
template <typename T> static int held_byte(unsigned long long of, int row, int term) {
  long long at = ((of & 0x3fff) << 4) + row / 8 * ((of >> 32 & 0x3fff) << 4) + row % 8 * 128 + term;
  at ^= (at >> 7 & 7) << 4;
  return *(T*)(shared_memory + at);
}
template <typename A, typename B>
void multiply_bytes(int* c, unsigned long long a, unsigned long long b, int width) {
  int warp = self->warp % 4, g = self->lane / 4, t = self->lane % 4;
  auto product = [=] {
    for (int half = 0; half < 2; ++half) for (int j = 0; j < width / 8; ++j)
      for (int pair = 0; pair < 2; ++pair) for (int k = 0; k < 32; ++k)
        c[half * width / 4 + j * 2 + pair] += held_byte<A>(a, 16 * warp + 8 * half + g, k)
            * held_byte<B>(b, 8 * j + 2 * t + pair, k);
  };
  if (eager) product();
  else self->multiplied.push_back(product);
}
// The left side is what the threads of a row hold: they show it to one another when they begin.
template <float (*F)(unsigned short)>
void multiply_held(float* c, const unsigned int* a, unsigned long long b, int width) {
  Warp& warp = warps[self->warp];
  int g = self->lane / 4, t = self->lane % 4;
  for (int n = 0; n < 4; ++n) warp.held[self->lane][n] = a[n];
  warp.all.arrive_and_wait();
  std::vector<float> left(32);
  for (int half = 0; half < 2; ++half) for (int k = 0; k < 16; ++k)
    left[half * 16 + k] =
        F(warp.held[g * 4 + k % 8 / 2][half + k / 8 * 2] >> k % 2 * 16 & 0xffff);
  warp.all.arrive_and_wait();
  auto product = [=] {
    for (int half = 0; half < 2; ++half) for (int j = 0; j < width / 8; ++j)
      for (int pair = 0; pair < 2; ++pair) for (int k = 0; k < 16; ++k)
        c[half * width / 4 + j * 2 + pair] +=
            left[half * 16 + k] * held<true>(b, 8 * j + 2 * t + pair, k, F);
  };
  if (eager) product();
  else self->multiplied.push_back(product);
}
