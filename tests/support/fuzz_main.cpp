// A main for fuzz targets where libFuzzer is not at hand (g++): replays a corpus, then feeds seeded
// mutations of it for some seconds. Blind to coverage, so it finds less than libFuzzer (preset
// `fuzz`), but it runs in every check. An input that kills the target is written to a file, named
// with the seed.
//
//   target [--seconds N] [--seed N] [FILE or FOLDER]...

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// NOLINTNEXTLINE(bugprone-reserved-identifier): the sanitizers' own name
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using bytes = std::vector<std::uint8_t>;

constexpr std::size_t input_bytes_max = 64 * 1024;
constexpr std::size_t mutations_max = 8;

// What a dying process must still be able to write: no allocation, no locks.
const bytes* current = nullptr;
std::array<char, 64> crash_file{};

void save_current() {
  if (current == nullptr) return;
  auto fd = ::open(crash_file.data(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (fd < 0) return;
  auto written = ::write(fd, current->data(), current->size());
  static_cast<void>(written);
  ::close(fd);
  constexpr char note[] = "fuzz: the input is saved in ";
  written = ::write(STDERR_FILENO, note, sizeof(note) - 1);
  written = ::write(STDERR_FILENO, crash_file.data(), std::strlen(crash_file.data()));
  written = ::write(STDERR_FILENO, "\n", 1);
  current = nullptr;
}

void on_signal(int number) {
  save_current();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void run(const bytes& input) {
  current = &input;
  LLVMFuzzerTestOneInput(input.data(), input.size());
  current = nullptr;
}

bytes read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class mutator {
 public:
  mutator(std::uint64_t seed, const std::vector<bytes>& corpus) : random_(seed), corpus_(corpus) {}

  bytes next() {
    bytes input = corpus_[below(corpus_.size())];
    for (auto rounds = 1 + below(mutations_max); rounds > 0; --rounds) change(input);
    if (input.size() > input_bytes_max) input.resize(input_bytes_max);
    return input;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }

  void change(bytes& x) {
    // Values at which sizes and counts go wrong.
    static constexpr std::uint8_t edges[] = {0,    1,   0x7f, 0x80, 0xff, '"',
                                             '\\', '{', '[',  '\n', ' '};
    auto at = below(x.size() + 1);
    switch (below(7)) {
    case 0:  // flip a bit
      if (!x.empty()) x[at % x.size()] ^= static_cast<std::uint8_t>(1U << below(8));
      break;
    case 1:  // an edge value
      if (!x.empty()) x[at % x.size()] = edges[below(std::size(edges))];
      break;
    case 2:  // a run of one value, as of a size that lies
      for (auto n = std::min(x.size() - std::min(at, x.size()), std::size_t{4}); n > 0; --n)
        x[at + n - 1] = 0xff;
      break;
    case 3:  // cut out
      x.erase(x.begin() + static_cast<std::ptrdiff_t>(at),
              x.begin() + static_cast<std::ptrdiff_t>(at + below(x.size() - at + 1)));
      break;
    case 4: {  // repeat a stretch
      bytes piece(x.begin() + static_cast<std::ptrdiff_t>(at),
                  x.begin() + static_cast<std::ptrdiff_t>(at + below(x.size() - at + 1)));
      x.insert(x.begin() + static_cast<std::ptrdiff_t>(at), piece.begin(), piece.end());
      break;
    }
    case 5: {  // splice in a stretch of another input
      const auto& other = corpus_[below(corpus_.size())];
      auto from = below(other.size() + 1);
      auto to = from + below(other.size() - from + 1);
      x.insert(x.begin() + static_cast<std::ptrdiff_t>(at),
               other.begin() + static_cast<std::ptrdiff_t>(from),
               other.begin() + static_cast<std::ptrdiff_t>(to));
      break;
    }
    default:  // insert a byte
      x.insert(x.begin() + static_cast<std::ptrdiff_t>(at), static_cast<std::uint8_t>(random_()));
    }
  }

  std::mt19937_64 random_;
  const std::vector<bytes>& corpus_;
};

}  // namespace

int main(int argc, char** argv) {
  long seconds = 10;
  std::uint64_t seed = std::random_device{}();
  std::vector<bytes> corpus;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--seconds" && i + 1 < argc) {
      seconds = std::strtol(argv[++i], nullptr, 10);
    } else if (arg == "--seed" && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (std::filesystem::is_directory(arg)) {
      std::vector<std::filesystem::path> files;
      for (const auto& entry : std::filesystem::recursive_directory_iterator(arg))
        if (entry.is_regular_file()) files.push_back(entry.path());
      std::sort(files.begin(),
                files.end());  // the same order everywhere, so that a seed reproduces
      for (const auto& file : files) corpus.push_back(read_file(file));
    } else if (std::filesystem::is_regular_file(arg)) {
      corpus.push_back(read_file(arg));
    } else {
      std::fprintf(stderr, "fuzz: no such file or folder: %s\n", arg.c_str());
      return 2;
    }
  }
  std::printf("fuzz: seed %llu, %zu inputs in the corpus, %ld s\n",
              static_cast<unsigned long long>(seed), corpus.size(), seconds);
  std::fflush(stdout);
  std::snprintf(crash_file.data(), crash_file.size(), "fuzz-crash-%llu.bin",
                static_cast<unsigned long long>(seed));
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(save_current);
  for (int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(number, on_signal);

  for (const auto& input : corpus) run(input);
  if (corpus.empty()) corpus.emplace_back();
  mutator mutations(seed, corpus);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  std::uint64_t runs = corpus.size();
  while (std::chrono::steady_clock::now() < end)
    for (int i = 0; i < 64; ++i, ++runs) {
      const auto input = mutations.next();
      run(input);
    }
  std::printf("fuzz: %llu inputs, none killed the target\n", static_cast<unsigned long long>(runs));
  return 0;
}
