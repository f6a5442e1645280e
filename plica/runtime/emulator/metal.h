// The words of Metal Shading Language on a processor.
typedef unsigned char uchar; typedef unsigned short ushort;
namespace metal {
template <typename T, typename F> static T as_type(F a) { T r; std::memcpy(&r, &a, sizeof r); return r; }
using std::acos; using std::acosh; using std::asin; using std::asinh; using std::atan; using std::atan2;
using std::atanh; using std::ceil; using std::copysign; using std::cos; using std::cosh; using std::exp;
using std::exp2; using std::fabs; using std::floor; using std::fma; using std::fmod; using std::log;
using std::log10; using std::log2; using std::pow; using std::rint; using std::round; using std::sin;
using std::sinh; using std::sqrt; using std::tan; using std::tanh; using std::trunc;
static int popcount(unsigned long a) { return __builtin_popcountll(a); }
}
#define device
#define constant const
#define kernel extern "C"
