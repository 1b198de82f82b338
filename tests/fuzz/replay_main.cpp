// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without a fuzzer: replay COUNT PATH... passes every file, and every file of
// every folder, to the target as it is and then COUNT times with a few bytes changed. The changes
// are the same in every run. An input that crashes the target can be replayed with COUNT 0.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

std::string mutated(std::string input, const std::vector<std::string>& seeds,
                    std::mt19937& random) {
  constexpr char kTelling[] = "{}[]:,\"\\0123456789-+.eE \n\x80\xff";
  const auto below = [&](size_t limit) { return random() % std::max<size_t>(limit, 1); };
  for (size_t edits = 1 + below(4); edits > 0; --edits) {
    const size_t at = below(input.size() + 1);
    const size_t length = below(std::min<size_t>(input.size() - at, 16) + 1);
    switch (below(6)) {
      case 0:
        input.insert(at, 1, kTelling[below(sizeof kTelling)]);
        break;
      case 1:
        input.erase(at, length);
        break;
      case 2:
        input.insert(below(input.size() + 1), input.substr(at, length));
        break;
      case 3:
        input.resize(at);
        break;
      case 4: {
        const std::string& other = seeds[below(seeds.size())];
        input.insert(at, other.substr(below(other.size()), 1 + below(32)));
        break;
      }
      default:
        if (at < input.size()) input[at] = kTelling[below(sizeof kTelling)];
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s COUNT PATH...\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (int i = 2; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      files.emplace_back(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) files.push_back(entry);
  }
  std::sort(files.begin(), files.end());

  std::vector<std::string> seeds;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    if (!in) {
      std::fprintf(stderr, "cannot read %s\n", file.c_str());
      return 1;
    }
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "no seeds found\n");
    return 1;
  }

  const long count = std::strtol(argv[1], nullptr, 10);
  std::mt19937 random(1);
  for (const std::string& seed : seeds) {
    run(seed);
    for (long i = 0; i < count; ++i) run(mutated(seed, seeds, random));
  }
  std::printf("%zu seeds, %ld mutations each\n", seeds.size(), count);
  return 0;
}
