// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/streamed_weights.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kerf/base/error.h"
#include "kerf/libtorch/stream/fetch_pages.h"
#include "kerf/libtorch/stream/file_window.h"
#include "kerf/libtorch/stream/mapped_file.h"
#include "kerf/libtorch/stream/pages.h"
#include "kerf/libtorch/stream/pinned_arena.h"
#include "kerf/libtorch/stream/write_watch.h"

namespace kerf {
namespace {

// A folder, and a file in it that has some tensors one after the other.
class TemporaryFile {
 public:
  TemporaryFile() : folder_(std::filesystem::temp_directory_path() / "kerf_stream_XXXXXX") {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/weights";
    const std::ofstream file(path_);
  }
  ~TemporaryFile() { std::filesystem::remove_all(folder_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& folder() const { return folder_; }
  const std::string& path() const { return path_; }

  std::vector<at::Tensor> save(const std::vector<at::Tensor>& tensors) const {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    for (const at::Tensor& tensor : tensors) {
      file.write(static_cast<const char*>(tensor.const_data_ptr()),
                 static_cast<std::streamsize>(tensor.nbytes()));
    }
    file.close();
    const auto mapped = MappedFile::open(path_);
    std::vector<at::Tensor> out;
    std::size_t offset = 0;
    for (const at::Tensor& tensor : tensors) {
      out.push_back(mapped->tensor(offset, tensor.scalar_type(), tensor.sizes()));
      offset += tensor.nbytes();
    }
    return out;
  }

 private:
  std::string folder_;
  std::string path_;
};

std::vector<at::Tensor> random_weights(std::size_t count, std::int64_t rows = 300) {
  std::vector<at::Tensor> weights;
  for (std::size_t w = 0; w < count; ++w) {
    weights.push_back(at::randn({rows + static_cast<std::int64_t>(w), 17}));
  }
  return weights;
}

TEST(AMappedFile, HasWhatWasMovedToIt) {
  const TemporaryFile file;
  std::vector<at::Tensor> weights = random_weights(3);
  weights.push_back(at::zeros({0, 4}));
  weights.push_back(at::randint(0, 9, {5}, at::kLong));
  weights.push_back(at::randn({4, 3}, at::kComplexFloat).conj());
  const std::vector<at::Tensor> moved = move_to_file(file.folder(), as_they_are(weights));
  const std::vector<at::Tensor> others =
      move_to_file(file.folder(), as_they_are(random_weights(3)));
  std::filesystem::remove(file.path());
  EXPECT_TRUE(std::filesystem::is_empty(file.folder()));  // none has a name
  for (std::size_t w = 0; w < weights.size(); ++w) EXPECT_TRUE(at::equal(moved[w], weights[w]));
  EXPECT_EQ(MappedFile::at(weights[0].const_data_ptr()), nullptr);
  EXPECT_NE(MappedFile::at(moved[1].const_data_ptr()), nullptr);
}

// More than the pieces that are converted at a time; a view, too.
TEST(AHostWeight, IsTheTypeThatItIsWantedAs) {
  const TemporaryFile file;
  const at::Tensor large = at::randn({1500, 1000}).to(at::kBFloat16);
  const at::Tensor turned = at::randn({30, 70}).t();
  const at::Tensor gaps = at::randn({30, 70}).slice(1, 0, 70, 2).t();
  const std::vector<HostWeight> weights = {{large, at::kFloat},
                                           {turned, at::kHalf},
                                           {file.save({large}).front(), at::kDouble},
                                           {gaps, at::kFloat}};
  const std::vector<at::Tensor> expected = {large.to(at::kFloat), turned.to(at::kHalf),
                                            large.to(at::kDouble), gaps.contiguous()};
  const std::vector<at::Tensor> moved = move_to_file(file.folder(), weights);
  const std::vector<at::Tensor> pinned = PinnedArena(64 << 10).take(weights);
  for (std::size_t w = 0; w < weights.size(); ++w) {
    for (const at::Tensor& found : {moved[w], pinned[w], weights[w].load(at::kCPU)}) {
      EXPECT_EQ(found.scalar_type(), expected[w].scalar_type());
      EXPECT_TRUE(at::equal(found, expected[w]));
      EXPECT_EQ(found.strides(), expected[w].strides());
    }
  }
}

TEST(AMappedFile, ReadsWhatThisProcessHasWritten) {
  const TemporaryFile file;
  const at::Tensor weight = at::randn({4096, 5});  // twenty pages
  at::Tensor moved = file.save({weight}).front();
  const auto mapped = MappedFile::at(moved.const_data_ptr());
  at::Tensor copy = at::empty_like(moved);
  mapped->read(moved.const_data_ptr(), moved.nbytes(), copy.mutable_data_ptr());
  EXPECT_TRUE(at::equal(copy, weight));
  EXPECT_FALSE(any_written(moved.const_data_ptr(), moved.nbytes()));
  moved[2000].fill_(7);
  EXPECT_TRUE(any_written(moved.const_data_ptr(), moved.nbytes()));
  mapped->read(moved.const_data_ptr(), moved.nbytes(), copy.mutable_data_ptr());
  EXPECT_TRUE(at::equal(copy, moved));
  EXPECT_FALSE(at::equal(copy, weight));
  // The file has what it had.
  EXPECT_TRUE(at::equal(MappedFile::open(file.path())->tensor(0, at::kFloat, {4096, 5}), weight));
}

TEST(AMappedFile, ThatIsCutOffOrNotThereIsAnError) {
  EXPECT_THROW(MappedFile::open("/nowhere/model"), Error);
  EXPECT_THROW(MappedFile::open("/tmp"), Error);
  const TemporaryFile file;
  EXPECT_THROW(MappedFile::open(file.path()), Error);  // empty
  const at::Tensor moved = file.save({at::randn({4096})}).front();
  const auto mapped = MappedFile::at(moved.const_data_ptr());
  EXPECT_THROW(mapped->tensor(100, at::kFloat, {4096}), Error);
  ASSERT_EQ(::truncate(file.path().c_str(), 1000), 0);
  std::vector<float> to(4096);
  EXPECT_THROW(mapped->read(moved.const_data_ptr(), moved.nbytes(), to.data()), Error);
}

struct Model {
  Model(std::size_t units, std::int64_t rows) {
    originals = random_weights(units, rows);
    const std::vector<at::Tensor> moved = file.save(originals);
    std::vector<StreamedWeights::Unit> given;
    for (std::size_t u = 0; u < units; ++u) {
      parameters.push_back(moved[u].clone());
      parameters.back().set_data(moved[u]);
      given.push_back({"layers." + std::to_string(u), {parameters[u]}});
    }
    largest = StreamedWeights::bytes_of({parameters.back()});
    weights = std::make_unique<StreamedWeights>(std::move(given), at::kCPU, 2, largest);
  }

  // Every unit in turn; each must have its numbers inside, in memory that is not the file's.
  void call() {
    for (std::size_t u = 0; u < parameters.size(); ++u) {
      weights->enter(u);
      EXPECT_EQ(MappedFile::at(parameters[u].const_data_ptr()), nullptr);
      EXPECT_TRUE(at::equal(parameters[u], originals[u])) << u;
      weights->leave(u);
      EXPECT_NE(MappedFile::at(parameters[u].const_data_ptr()), nullptr);
    }
    weights->end_call();
  }

  TemporaryFile file;
  std::vector<at::Tensor> originals;
  std::vector<at::Tensor> parameters;
  Bytes largest;
  std::unique_ptr<StreamedWeights> weights;
};

// By rows: such as are copied, and such as need no copy.
class WeightsOfAFile : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(SmallAndLarge, WeightsOfAFile, ::testing::Values(300, 20000));

TEST_P(WeightsOfAFile, AreThereWhileTheirUnitRuns) {
  Model model(6, GetParam());
  for (int i = 0; i < 20; ++i) model.call();
  EXPECT_EQ(model.weights->stats().uses, 120);
  EXPECT_EQ(model.weights->stats().misses, 1);
}

TEST_P(WeightsOfAFile, FollowEdits) {
  Model model(4, GetParam());
  for (int i = 0; i < 8; ++i) {
    model.call();
    const auto u = static_cast<std::size_t>(i % 4);
    if (i < 4) {
      model.parameters[u].mul_(2);
    } else {
      model.parameters[u].variable_data().mul_(2);  // nobody counts this
    }
    model.originals[u].mul_(2);
    model.call();
  }
}

TEST_P(WeightsOfAFile, KeepWhatAForwardWrites) {
  Model model(4, GetParam());
  model.call();
  model.weights->enter(1);
  model.parameters[1].add_(1);
  model.weights->leave(1);
  model.originals[1].add_(1);
  EXPECT_TRUE(at::equal(model.parameters[1], model.originals[1]));
  model.call();
}

// Through .data, or by other data: PyTorch counts neither.
TEST_P(WeightsOfAFile, KeepWhatAForwardWritesUnseen) {
  Model model(4, GetParam());
  for (int i = 0; i < 6; ++i) {
    model.call();
    model.weights->enter(1);
    if (i % 2 == 0) {
      model.parameters[1].variable_data().mul_(0.5);
    } else {
      model.parameters[1].set_data(model.parameters[1].variable_data() * 0.5);
    }
    model.weights->leave(1);
    model.originals[1].mul_(0.5);
    EXPECT_TRUE(at::equal(model.parameters[1], model.originals[1]));
  }
  model.call();
}

// One number of a thousand, in turns another; and all signs, of doubles too.
TEST_P(WeightsOfAFile, KeepASingleNumberThatAForwardWritesUnseen) {
  Model model(4, GetParam());
  for (std::int64_t i = 0; i < 9; ++i) {
    model.call();
    model.weights->enter(1);
    const at::Tensor inside = model.parameters[1].variable_data().view(-1);
    const at::Tensor outside = model.originals[1].view(-1);
    const std::int64_t at = i * 571 % inside.numel();
    for (const at::Tensor& numbers : {inside, outside}) {
      numbers[at].fill_(i);
      if (i == 5) numbers.narrow(0, 0, inside.numel() / 2 * 2).view(at::kDouble).neg_();
    }
    model.weights->leave(1);
    EXPECT_TRUE(at::equal(model.parameters[1], model.originals[1])) << i;
  }
  model.call();
}

// Twice the bytes would not fit its slot: refused every time, and nothing is taken over.
TEST_P(WeightsOfAFile, OfAnotherSizeAreRefusedUntilTheyAreBack) {
  Model model(4, GetParam());
  model.call();
  const at::Tensor home = model.parameters[3].variable_data();
  model.parameters[3].set_data(at::randn({700, 17}));
  for (int i = 0; i < 5; ++i) EXPECT_THROW(model.weights->enter(3), Error);
  model.parameters[3].set_data(home);
  model.call();
  const at::Tensor twice = at::randn({2 * model.parameters[2].size(0), 17});
  model.parameters[2].set_data(twice.slice(0, 0, twice.size(0), 2));
  EXPECT_THROW(model.weights->enter(2), Error);  // there are gaps
}

TEST_P(WeightsOfAFile, LeaveACopyToWhoeverKeepsAView) {
  Model model(4, GetParam());
  model.call();
  std::vector<at::Tensor> views;
  for (std::size_t u = 0; u < 4; ++u) {
    model.weights->enter(u);
    views.push_back(model.parameters[u].t().slice(0, 2, 9));
    model.weights->leave(u);
  }
  model.weights->end_call();
  for (int i = 0; i < 3; ++i) model.call();
  for (std::size_t u = 0; u < 4; ++u) {
    EXPECT_TRUE(at::equal(views[u], model.originals[u].t().slice(0, 2, 9))) << u;
  }
}

TEST_P(WeightsOfAFile, GoHomeWhenACallIsAbandoned) {
  Model model(4, GetParam());
  model.weights->enter(2);
  model.weights->enter(2);  // from inside of itself
  model.weights->abandon();
  EXPECT_NE(MappedFile::at(model.parameters[2].const_data_ptr()), nullptr);
  model.call();
  model.weights->enter(3);
  model.weights.reset();
  EXPECT_TRUE(at::equal(model.parameters[3], model.originals[3]));
  EXPECT_NE(MappedFile::at(model.parameters[3].const_data_ptr()), nullptr);
}

TEST_P(WeightsOfAFile, SayWhichFileCannotBeRead) {
  Model model(4, GetParam());
  model.call();
  ASSERT_EQ(::truncate(model.file.path().c_str(), 100), 0);
  try {
    for (std::size_t u = 0; u < 4; ++u) {
      model.weights->enter(u);
      model.weights->leave(u);
    }
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::io);
    EXPECT_THAT(error.what(), ::testing::HasSubstr(model.file.path()));
  }
}

// Bytes of this process's memory, in MiB: its own, and pages of files.
std::pair<double, double> memory_in_use() {
  std::ifstream status("/proc/self/status");
  double own = 0;
  double of_files = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) own = std::stod(line.substr(8)) / 1024;
    if (line.starts_with("RssFile:")) of_files = std::stod(line.substr(8)) / 1024;
  }
  return {own, of_files};
}

TEST(AFileWindow, HasTheNumbersOfItsHome) {
  const TemporaryFile file;
  at::Tensor home = file.save({at::randn({700, 1000})}).front();
  home[300].fill_(7);  // a page of this process
  const auto window = FileWindow::of(home);
  ASSERT_NE(window, nullptr);
  FileWindow::open({window}, 0, false);
  const at::Tensor view = at::from_blob(window->data(), home.sizes(), at::kFloat);
  EXPECT_NE(view.const_data_ptr(), home.const_data_ptr());
  EXPECT_TRUE(at::equal(view, home));
  view[20].zero_();  // neither the file's nor the home's
  EXPECT_NE(home[20][0].item<float>(), 0);
  FileWindow::open({window}, 0, false);
  EXPECT_TRUE(at::equal(view, home));
  EXPECT_NE(MappedFile::open(file.path())->tensor(0, at::kFloat, {700, 1000})[20][0].item<float>(),
            0);
}

// The slot that it was fetched for before comes to something else: it is not that slot's now.
TEST(AFileWindow, IsClosedByTheSlotThatOpenedItLast) {
  const TemporaryFile file;
  const at::Tensor home = file.save({at::randn({700, 1000})}).front();
  const auto window = FileWindow::of(home);
  FileWindow::open({window}, 0, false);
  FileWindow::open({window}, 1, false);
  auto* const first = static_cast<float*>(window->data());
  first[0] = 1000;
  window->close(0);
  EXPECT_EQ(first[0], 1000);
  window->close(1);
  EXPECT_EQ(first[0], home[0][0].item<float>());
}

TEST(AFileWindow, IsForLargeWeightsOfFilesAlone) {
  const TemporaryFile file;
  const at::Tensor byte = at::zeros({1}, at::kByte);
  const auto saved =
      file.save({at::randn({700, 1000}), at::randn({70, 100}), byte, at::randn({700, 1000})});
  EXPECT_NE(FileWindow::of(saved[0]), nullptr);
  EXPECT_EQ(FileWindow::of(saved[1]), nullptr);
  EXPECT_EQ(FileWindow::of(saved[3]), nullptr);  // at an odd address
  EXPECT_EQ(FileWindow::of(at::randn({700, 1000})), nullptr);
}

// The system allows a process so many mappings, and others need some.
TEST(AFileWindow, IsNotForEveryWeightOfThousands) {
  const TemporaryFile file;
  const at::Tensor home = file.save({at::randn({700, 1000})}).front();
  std::vector<std::shared_ptr<FileWindow>> windows;
  while (windows.size() < 20000) {
    auto window = FileWindow::of(home);
    if (!window) break;
    windows.push_back(std::move(window));
  }
  EXPECT_GT(windows.size(), 1000U);
  EXPECT_LT(windows.size(), 20000U);
  windows.pop_back();
  EXPECT_NE(FileWindow::of(home), nullptr);
}

TEST(AFileWindow, SaysThatItsFileWasCutOff) {
  const TemporaryFile file;
  const at::Tensor home = file.save({at::randn({700, 1000})}).front();
  const auto window = FileWindow::of(home);
  FileWindow::open({window}, 0, false);
  window->check();
  // Within the last page, whose rest would be zeros.
  ASSERT_EQ(::truncate(file.path().c_str(), static_cast<::off_t>(home.nbytes() - 4)), 0);
  EXPECT_THROW(window->check(), Error);
  EXPECT_THROW(FileWindow::open({window}, 0, false), Error);
  ASSERT_EQ(::truncate(file.path().c_str(), 1000), 0);
  EXPECT_THROW(FileWindow::open({window}, 0, false), Error);
}

// From the disk, by several threads where somebody waits.
TEST(AFileWindow, FetchesWhatTheSystemDoesNotHave) {
  const TemporaryFile file;
  const at::Tensor values = at::randn({6000, 1000});  // 23 MiB
  const at::Tensor home = file.save({values}).front();
  const int opened = ::open(file.path().c_str(), O_RDONLY);
  ::fsync(opened);
  for (const bool is_awaited : {false, true}) {
    ASSERT_EQ(::posix_fadvise(opened, 0, 0, POSIX_FADV_DONTNEED), 0);
    const auto window = FileWindow::of(home);
    ASSERT_NE(window, nullptr);
    FileWindow::open({window}, 0, is_awaited);
    EXPECT_TRUE(at::equal(at::from_blob(window->data(), home.sizes(), at::kFloat), values));
    ASSERT_EQ(::posix_fadvise(opened, 0, 0, POSIX_FADV_DONTNEED), 0);
  }
  ::close(opened);
}

// As `check` would say, had the file been cut off before it was asked.
TEST(FetchedPages, AreRefusedBehindTheEndOfTheirFile) {
  const TemporaryFile file;
  const at::Tensor home = file.save({at::randn({6000, 1000})}).front();
  const auto* const begin = page_begin(home.const_data_ptr());
  const Pages first{begin, begin + (1 << 20)};
  const Pages all{begin, begin + page_bytes(begin, home.nbytes())};
  ASSERT_EQ(::truncate(file.path().c_str(), 4 << 20), 0);
  EXPECT_FALSE(fetch_pages({first, first}, true));
  for (const bool is_awaited : {false, true}) {
    const auto failure = fetch_pages({first, all}, is_awaited);
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->which, 1U);
  }
}

TEST(WrittenPages, AreThoseOfThisProcess) {
  const TemporaryFile file;
  const at::Tensor home = file.save({at::zeros({6 << 20}, at::kByte)}).front();
  const auto* const begin = static_cast<const std::byte*>(home.const_data_ptr());
  const auto page = static_cast<std::int64_t>(page_bytes(begin, 1));
  const auto found = [&](std::size_t bytes, std::size_t most) {
    std::vector<std::pair<std::int64_t, std::int64_t>> out;
    for (const Pages& pages : written_pages(begin, bytes, most)) {
      out.emplace_back((pages.begin - begin) / page, (pages.end - begin) / page);
    }
    return out;
  };
  using Runs = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(home.sum().item<std::int64_t>(), 0);  // read, and not written
  EXPECT_EQ(found(home.nbytes(), 100), Runs{});
  home[3 * page].fill_(1);
  home[900 * page].fill_(1);
  home[901 * page + 1].fill_(1);
  EXPECT_EQ(found(home.nbytes(), 100), (Runs{{3, 4}, {900, 902}}));
  EXPECT_EQ(found(home.nbytes(), 1), (Runs{{3, 4}}));
  EXPECT_EQ(found(static_cast<std::size_t>(3 * page), 100), Runs{});
  for (std::int64_t p = 4; p < 604; p += 2) home[p * page].fill_(1);  // more than are told at once
  EXPECT_EQ(found(home.nbytes(), 1000).size(), 301U);                 // the first is next to page 3
}

// Of 64 MiB in a file two units at a time, and no copies of them. What is in no file is copied
// into the same slots, which then give back what the copies took.
TEST(StreamedWeights, TakeNoMoreMemoryThanTheirSlots) {
  const TemporaryFile file;
  constexpr std::int64_t kElements = 1 << 20;  // 4 MiB
  std::vector<at::Tensor> homes = file.save(std::vector<at::Tensor>(16, at::ones({kElements})));
  for (int i = 0; i < 4; ++i) homes.push_back(at::ones({kElements}));
  std::vector<StreamedWeights::Unit> units;
  for (const at::Tensor& home : homes) units.push_back({"layer", {home}});
  {  // what PyTorch and the system load when they are first used
    StreamedWeights weights(units, at::kCPU, 2, Bytes{4 << 20});
    weights.enter(0);
    EXPECT_EQ(homes[0].sum().item<float>(), kElements);
  }
  const auto before = memory_in_use();
  {
    StreamedWeights weights(std::move(units), at::kCPU, 2, Bytes{4 << 20});
    for (int call = 0; call < 3; ++call) {
      for (const std::size_t unit : {16, 0, 1, 2, 17, 3, 18, 19, 4, 5, 6, 7, 8, 9, 10, 15}) {
        weights.enter(unit);
        EXPECT_EQ(homes[unit].sum().item<float>(), kElements);
        weights.leave(unit);
        const auto now = memory_in_use();
        EXPECT_LT(now.first - before.first + now.second - before.second, 9.0) << unit;
        if (unit == 9) {  // what follows is in the file, too
          EXPECT_LT(now.first - before.first, 1.0);
        }
      }
      weights.end_call();
    }
  }
  EXPECT_LT(memory_in_use().second - before.second, 1.0);
}

// On the host: what is no file's is not copied again for every use, and edits are seen all the
// same.
TEST(StreamedWeights, OfMemoryAreCopiedAgainWhenSomebodyWroteThem) {
  PinnedArena arena(1 << 20);
  at::Tensor first = arena.take(as_they_are({at::randn({30, 7})}))[0];
  at::Tensor second = arena.take(as_they_are({at::randn({30, 7})}))[0];
  StreamedWeights weights({{"first", {first}}, {"second", {second}}}, at::kCPU, 2, Bytes{1024});
  const auto use = [&](std::size_t unit, const at::Tensor& weight) {
    weights.enter(unit);
    const at::Tensor copy = weight.clone();
    weights.leave(unit);
    return copy;
  };
  for (int call = 0; call < 3; ++call) {
    EXPECT_TRUE(at::equal(use(0, first), first));
    EXPECT_TRUE(at::equal(use(1, second), second));
    weights.end_call();
  }
  EXPECT_EQ(weights.stats().copies, 2);         // both fit
  first.variable_data().select(0, 3).fill_(7);  // through .data: no version counts it
  EXPECT_EQ(use(0, first)[3][2].item<float>(), 7);
  EXPECT_EQ(weights.stats().copies, 3);
  EXPECT_EQ(use(0, first)[3][2].item<float>(), 7);
  EXPECT_EQ(weights.stats().copies, 3);
  const at::Tensor alias = first.variable_data();  // somebody who may write at any time
  alias.select(0, 4).fill_(5);
  EXPECT_EQ(use(0, first)[4][2].item<float>(), 5);
  auto* const raw = static_cast<float*>(alias.mutable_data_ptr());
  use(0, first);
  raw[0] = 11;
  EXPECT_EQ(use(0, first)[0][0].item<float>(), 11);
}

TEST(AWatchedTensor, KnowsThatSomebodyWroteIt) {
  const at::Tensor tensor = at::randn({4, 5});
  const at::Tensor before = tensor.clone();
  EXPECT_FALSE(is_watched(tensor));
  ASSERT_TRUE(watch_writes(tensor));
  const void* const address = tensor.const_data_ptr();
  EXPECT_TRUE(at::equal(tensor.matmul(tensor.t()), before.matmul(before.t())));
  EXPECT_TRUE(at::equal(tensor, before));
  EXPECT_TRUE(is_watched(tensor));
  tensor.variable_data()[2].zero_();
  EXPECT_FALSE(is_watched(tensor));
  EXPECT_EQ(tensor.const_data_ptr(), address);  // nothing was copied
  EXPECT_EQ(tensor[2][1].item<float>(), 0);
  EXPECT_TRUE(watch_writes(tensor));
}

TEST(APinnedArena, KeepsWhatWasMovedToItAndFreesItWithIt) {
  std::vector<at::Tensor> weights = random_weights(5);
  weights.push_back(at::zeros({0, 4}));
  weights.push_back(at::randn({3, 4}, at::kBFloat16));
  std::vector<at::Tensor> moved;
  {
    PinnedArena arena(64 << 10);  // less than they take
    moved = arena.take(as_they_are(weights));
  }
  for (std::size_t w = 0; w < weights.size(); ++w) {
    EXPECT_TRUE(at::equal(moved[w], weights[w]));
    if (weights[w].nbytes() > 0) {
      EXPECT_TRUE(is_watched(moved[w]));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(moved[w].const_data_ptr()) % 64, 0U);
    }
  }
  EXPECT_TRUE(PinnedArena::in_one_block(moved[0].const_data_ptr(), moved[0].const_data_ptr()));
  EXPECT_FALSE(PinnedArena::in_one_block(moved[0].const_data_ptr(), weights[0].const_data_ptr()));
}

TEST(StreamedWeights, LargerThanASlotAreRefused) {
  const at::Tensor weight = at::randn({100});
  EXPECT_THROW(StreamedWeights({{"head", {weight}}}, at::kCPU, 2, Bytes{128}), Error);
  EXPECT_THROW(StreamedWeights({{"head", {weight.expand({3, 100})}}}, at::kCPU, 2, Bytes{4096}),
               Error);
}

}  // namespace
}  // namespace kerf
