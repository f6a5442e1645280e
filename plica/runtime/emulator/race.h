// Races: `-fsanitize=thread` puts a call before every access, and these say who touched a byte last.
// Two threads meet where one of them writes and no barrier of the block, or of blocks any, is between.
#include <cstdio>
#define UNWATCHED __attribute__((no_sanitize("thread")))
struct Touch { int thread = -1, block = -1; long long opened = -1; };
struct Shadow { Touch written, read; bool by_several = false; };
struct Watched { const unsigned char* from; size_t size; bool is_shared; std::vector<Shadow> bytes; };
static std::vector<Watched>& watched = *new std::vector<Watched>;  // it outlives what ends after it
static char race[256];
static bool busy;
UNWATCHED static void meet(const char* what, size_t at, const Watched& of, const Touch& one, const Touch& two) {
  if (race[0]) return;
  char where[64] = "shared memory";
  if (!of.is_shared) std::snprintf(where, sizeof where, "buffer %d", (int)(&of - watched.data()) - 1);
  std::snprintf(race, sizeof race, "%s, byte %zu of %s: thread %d of block %d and thread %d of block %d",
                what, at, where, one.thread, one.block, two.thread, two.block);
}
UNWATCHED static void touch(const void* place, size_t size, bool writes) {
  const unsigned char* at = (const unsigned char*)place;
  if (busy || !self || race[0] || (at >= counters && at < counters_end)) return;
  busy = true;
  for (Watched& of : watched) {
    if (at < of.from || at >= of.from + of.size) continue;
    Touch now{self->warp * 32 + self->lane, block_number, block_gate.opened};
    auto meets = [&](const Touch& one) UNWATCHED {
      if (one.thread < 0 || (one.thread == now.thread && one.block == now.block)) return false;
      return one.block != now.block ? !of.is_shared : one.opened == now.opened;
    };
    for (size_t n = at - of.from, end = min(n + size, of.size); n < end; ++n) {
      Shadow& is = of.bytes[n];
      if (meets(is.written)) meet(writes ? "two writes" : "a write and a read", n, of, is.written, now);
      if (writes) {
        bool sooner = is.read.block == now.block && is.read.opened == now.opened;
        if (meets(is.read) || (is.by_several && sooner)) meet("a read and a write", n, of, is.read, now);
        is.written = now;
      } else if (is.read.block != now.block || is.read.opened != now.opened) {
        is.read = now, is.by_several = false;
      } else if (is.read.thread != now.thread) {
        is.by_several = true;
      }
    }
    break;
  }
  busy = false;
}
extern "C" {
#define ACCESS(n) \
  UNWATCHED void __tsan_read##n(void* at) { touch(at, n, false); } \
  UNWATCHED void __tsan_write##n(void* at) { touch(at, n, true); } \
  UNWATCHED void __tsan_unaligned_read##n(void* at) { touch(at, n, false); } \
  UNWATCHED void __tsan_unaligned_write##n(void* at) { touch(at, n, true); }
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
UNWATCHED void __tsan_read_range(void* at, size_t size) { touch(at, size, false); }
UNWATCHED void __tsan_write_range(void* at, size_t size) { touch(at, size, true); }
UNWATCHED void __tsan_init() {}
UNWATCHED void __tsan_func_entry(void*) {}
UNWATCHED void __tsan_func_exit() {}
UNWATCHED void __tsan_vptr_update(void**, void*) {}
UNWATCHED void __tsan_vptr_read(void**) {}
// Watch what threads share and what a launch is given, anew.
UNWATCHED void watch_accesses(int many, void* const* from, const long long* sizes) {
  watched.clear();
  race[0] = 0;
  hears = touch;
  watched.push_back({shared_memory, sizeof shared_memory, true, std::vector<Shadow>(sizeof shared_memory)});
  for (int n = 0; n < many; ++n)
    watched.push_back({(unsigned char*)from[n], (size_t)sizes[n], false, std::vector<Shadow>(sizes[n])});
}
UNWATCHED const char* raced() { return race; }
}
