// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Random damage to texts. Reproducible: a failure names its seed, and the seed gives the text.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/base/rng.h"

namespace kerf::fuzz {

class Mutator {
 public:
  // `words` are pieces of the format: tokens worth inserting.
  Mutator(std::uint64_t seed, std::vector<std::string> words)
      : rng_(seed), words_(std::move(words)) {}

  std::string mutate(std::string text) {
    const std::uint64_t count = 1 + rng_.below(6);
    for (std::uint64_t i = 0; i < count; ++i) step(text);
    return text;
  }

 private:
  std::size_t place(const std::string& text) { return rng_.below(text.size() + 1); }
  std::size_t length(const std::string& text, std::size_t at) {
    return std::min<std::size_t>(text.size() - at, 1 + rng_.below(rng_.below(8) == 0 ? 400 : 12));
  }

  void step(std::string& text) {
    const std::size_t at = place(text);
    switch (rng_.below(9)) {
      case 0:  // another byte
        if (at < text.size()) text[at] = static_cast<char>(rng_.next());
        break;
      case 1:  // a flipped bit
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << rng_.below(8)));
        break;
      case 2: text.erase(at, length(text, at)); break;
      case 3: text.insert(at, words_[rng_.below(words_.size())]); break;
      case 4: {  // a piece from elsewhere
        const std::size_t from = place(text);
        text.insert(at, text.substr(from, length(text, from)));
        break;
      }
      case 5: text.resize(at); break;
      case 6: swap_lines(text); break;
      case 7: change_number(text); break;
      default: {  // a word many times
        const std::string& word = words_[rng_.below(words_.size())];
        std::string many;
        for (std::uint64_t i = 0; i < 1 + rng_.below(300); ++i) many += word;
        text.insert(at, many);
      }
    }
  }

  void swap_lines(std::string& text) {
    const std::size_t end = text.find('\n', place(text));
    if (end == std::string::npos) return;
    const std::size_t next = text.find('\n', end + 1);
    if (next == std::string::npos) return;
    const std::string line = text.substr(end + 1, next - end);
    text.erase(end + 1, line.size());
    const std::size_t to = text.find('\n', place(text));
    text.insert(to == std::string::npos ? 0 : to + 1, line);
  }

  void change_number(std::string& text) {
    static constexpr const char* kNumbers[] = {"0",
                                               "-1",
                                               "1",
                                               "2147483648",
                                               "4294967295",
                                               "4294967296",
                                               "9223372036854775807",
                                               "-9223372036854775808",
                                               "9223372036854775808",
                                               "99999999999999999999999",
                                               "1e308",
                                               "1e999",
                                               "0.1",
                                               "-0.0",
                                               "nan",
                                               "inf"};
    const std::size_t at = text.find_first_of("0123456789", place(text));
    if (at == std::string::npos) return;
    const std::size_t end = text.find_first_not_of("0123456789", at);
    text.replace(at, end == std::string::npos ? 1 : end - at, kNumbers[rng_.below(16)]);
  }

  Rng rng_;
  std::vector<std::string> words_;
};

inline std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Calls try_text(seed) for a while: KERF_FUZZ_SECONDS (default 2) from KERF_FUZZ_SEED (default 1)
// on, KERF_FUZZ_COUNT texts at most. Returns how many were tried. Stops when a test assertion
// failed.
template <class TryText>
std::uint64_t run(TryText&& try_text) {
  const std::uint64_t first = number_from("KERF_FUZZ_SEED", 1);
  const std::uint64_t count = number_from("KERF_FUZZ_COUNT", 1'000'000'000);
  const std::chrono::seconds budget(number_from("KERF_FUZZ_SECONDS", 2));
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t done = 0;
  while (done < count && std::chrono::steady_clock::now() - start < budget) {
    if (!try_text(first + done)) break;
    ++done;
  }
  return done;
}

}  // namespace kerf::fuzz
