// The model `words` from C++: one row of numbers in, twelve scores out.
#include <cstdio>
#include "words.hpp"

int main() {
  std::vector<float> x(36);
  for (int i = 0; i < 36; i++) x[i] = (i % 7) / 7.0f;
  plica::Words words;
  double sum = 0;
  for (float each : words(x).out_output) sum += each;
  std::printf("%.6f\n", sum);
  try {
    words(std::vector<float>(35));
  } catch (const std::invalid_argument&) {
    return 0;
  }
  return 1;
}
