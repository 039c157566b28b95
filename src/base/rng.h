// Random numbers that depend on the seed alone: SplitMix64 seeding xoshiro256++ (Blackman and Vigna, 2019), and
// distributions of our own, because the standard library's differ between implementations.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

namespace opdiff {

class Rng {
 public:
  explicit Rng(std::uint64_t seed) {
    for (auto& word : state_) {
      seed += 0x9E3779B97F4A7C15u;
      std::uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
      word = z ^ (z >> 31);
    }
  }
  // An independent stream for a named purpose: Rng(seed, "Conv", 17).
  Rng(std::uint64_t seed, std::string_view name, std::uint64_t index = 0)
      : Rng(seed ^ hash(name) ^ (index * 0xD1342543DE82EF95u + 0x632BE59BD9B4E019u)) {}

  std::uint64_t next() {
    const std::uint64_t result = rotate(state_[0] + state_[3], 23) + state_[0];
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate(state_[3], 45);
    return result;
  }
  // Uniform in [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // Uniform integer in [low, high], both included.
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    const std::uint64_t last = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    const std::uint64_t offset = last == ~std::uint64_t{0} ? next() : next() % (last + 1);
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset);
  }
  bool chance(double probability) { return uniform() < probability; }
  // Standard normal (Box and Muller, 1958).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * M_PI * uniform());
  }
  template <class Range>
  auto pick(const Range& range) {
    return *(std::begin(range) + integer(0, static_cast<std::int64_t>(std::size(range)) - 1));
  }

 private:
  static std::uint64_t rotate(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  // FNV-1a.
  static std::uint64_t hash(std::string_view text) {
    std::uint64_t h = 0xCBF29CE484222325u;
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    return h;
  }
  std::uint64_t state_[4];
};

}  // namespace opdiff
