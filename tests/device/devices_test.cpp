// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/device/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>

#include "kerf/device/kind.h"

namespace kerf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LocalMachine machine_with(int cores) {
  LocalMachine machine;
  machine.cores.resize(static_cast<std::size_t>(cores));
  std::iota(machine.cores.begin(), machine.cores.end(), 0);
  machine.memory = Bytes{std::int64_t{8} << 30};
  return machine;
}

std::vector<std::string> names(const Cluster& cluster) {
  std::vector<std::string> all;
  for (const Device& device : cluster.devices) all.push_back(device.name);
  return all;
}

std::string error_of(const std::string& text) {
  try {
    parse_devices(text, machine_with(4));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(Devices, AreReadWithTheirLimits) {
  const Cluster cluster = parse_devices("cpu:0=2GiB, cpu:1=1GiB,cpu:2", machine_with(6));
  EXPECT_THAT(names(cluster), ElementsAre("cpu:0", "cpu:1", "cpu:2"));
  EXPECT_EQ(cluster.devices[0].memory, Bytes{std::int64_t{2} << 30});
  EXPECT_TRUE(cluster.devices[1].memory_limited);
  EXPECT_FALSE(cluster.devices[2].memory_limited);
}

TEST(Devices, MayBeCounted) {
  EXPECT_THAT(names(parse_devices("2xh200,h200:7,h200", machine_with(1))),
              ElementsAre("h200:0", "h200:1", "h200:7", "h200:8"));
  const Cluster cluster = parse_devices("4x16GiB", machine_with(1));
  EXPECT_THAT(names(cluster), ElementsAre("cuda:0", "cuda:1", "cuda:2", "cuda:3"));
  EXPECT_EQ(cluster.devices[3].memory, Bytes{std::int64_t{16} << 30});
}

TEST(Devices, ThatAreMisspeltAreShownInPlace) {
  EXPECT_THAT(error_of("cpu:0,gpx:1"), HasSubstr("unknown device 'gpx:1' at character 7"));
  EXPECT_THAT(error_of("cpu:0,gpx:1"), HasSubstr("\n  cpu:0,gpx:1\n        ^"));
  EXPECT_THAT(error_of("cpu:x"), HasSubstr("at character 5"));
  EXPECT_THAT(error_of("cpu:-1"), HasSubstr("at character 5"));
  EXPECT_THAT(error_of("cpu:0=-2GiB"), HasSubstr("at character 7"));
  EXPECT_THAT(error_of("cpu:0=0"), HasSubstr("positive size"));
  EXPECT_THAT(error_of("cpu:0=99999999EiB"), HasSubstr("at character 7"));
  EXPECT_THAT(error_of("cpu:0,"), HasSubstr("empty device"));
  EXPECT_THAT(error_of(""), HasSubstr("empty device"));
  EXPECT_THAT(error_of("0xcpu"), HasSubstr("zero devices"));
  EXPECT_THAT(error_of("5000xcpu"), HasSubstr("from 0 to 4096"));
  EXPECT_THAT(error_of("2xcpu:1"), HasSubstr("without a number"));
}

TEST(CpuDevices, OwnDisjointEqualSharesOfTheCores) {
  const Cluster cluster = parse_devices("cpu:0,cpu:1,cpu:2", machine_with(8));
  EXPECT_THAT(cluster.devices[0].cores, ElementsAre(0, 1));
  EXPECT_THAT(cluster.devices[1].cores, ElementsAre(2, 3));
  EXPECT_THAT(cluster.devices[2].cores, ElementsAre(4, 5));
  EXPECT_TRUE(cluster.notes.empty());
}

TEST(CpuDevices, ShareCoresWhenThereAreTooFewAndSaySo) {
  const Cluster cluster = parse_devices("3xcpu", machine_with(2));
  EXPECT_THAT(cluster.devices[2].cores, ElementsAre(0));
  ASSERT_EQ(cluster.notes.size(), 1U);
  EXPECT_THAT(cluster.notes[0], HasSubstr("3 CPU devices share 2 cores"));
}

TEST(CpuDevices, CannotBeNamedTwice) {
  EXPECT_THAT(error_of("cpu:0,cpu:0"), HasSubstr("cpu:0 twice"));
}

TEST(AnAccelerator, NamedTwiceIsTwoDevicesWithOneMemory) {
  const std::vector<std::string> twice{"cuda:0", "cuda:0", "cuda:1"};
  const Cluster cluster = make_cluster(twice, {{"cuda:0", Bytes{1000}}}, machine_with(2));
  EXPECT_THAT(names(cluster), ElementsAre("cuda:0", "cuda:0#1", "cuda:1"));
  EXPECT_EQ(cluster.devices[0].memory_group, cluster.devices[1].memory_group);
  EXPECT_NE(cluster.devices[0].memory_group, cluster.devices[2].memory_group);
  EXPECT_EQ(cluster.group_limit(0), Bytes{1000});
  EXPECT_EQ(cluster.devices[1].memory, Bytes{1000});
  EXPECT_FALSE(cluster.group_limited(1));
  EXPECT_EQ(cluster.link(DeviceId{0}, DeviceId{1}).bytes_per_second, 0) << "no copy is made";
}

TEST(MaxMemory, TakesNamesNumbersAndKindsTheMostParticularFirst) {
  const std::vector<std::string> wanted{"cuda:0", "cuda:1", "cuda:2", "cpu:0"};
  const Cluster cluster = make_cluster(
      wanted, {{"cuda", Bytes{10}}, {"1", Bytes{20}}, {"cuda:2", Bytes{30}}, {"cpu", Bytes{40}}},
      machine_with(2));
  EXPECT_EQ(cluster.devices[0].memory, Bytes{10});
  EXPECT_EQ(cluster.devices[1].memory, Bytes{20});
  EXPECT_EQ(cluster.devices[2].memory, Bytes{30});
  EXPECT_EQ(cluster.devices[3].memory, Bytes{40});
}

TEST(MaxMemory, RefusesAKeyThatNamesNoDeviceAndSizesThatCannotBe) {
  const std::vector<std::string> wanted{"cpu:0"};
  EXPECT_THROW(make_cluster(wanted, {{"cuda:0", Bytes{10}}}, machine_with(2)), Error);
  EXPECT_THROW(make_cluster(wanted, {{"cpu:0", Bytes{-1}}}, machine_with(2)), Error);
  EXPECT_THROW(make_cluster(wanted, {{"cpu:0", Bytes{INT64_MAX}}}, machine_with(2)), Error);
}

TEST(ACluster, ComesBackFromItsFile) {
  const Cluster cluster = parse_devices("cpu:0=2GiB,h200:0,h200:0,cuda:3", machine_with(3));
  const std::string path = ::testing::TempDir() + "kerf_cluster_test.json";
  save_cluster(cluster, path);
  EXPECT_EQ(load_cluster(path), cluster);
  std::remove(path.c_str());
}

TEST(ALink, TakesItsLatencyAndTheBytes) {
  const Link link{Nanoseconds{100}, 2e9, false};
  EXPECT_DOUBLE_EQ(link.time(Bytes{4000}).count, 2100);
  EXPECT_DOUBLE_EQ((Link{Nanoseconds{100}, 0, false}.time(Bytes{4000}).count), 100);
}

TEST(Kinds, HaveRatesThatMakeSense) {
  for (const std::string& name : device_kind_names()) {
    const DeviceKind& kind = device_kind(name);
    EXPECT_GT(kind.flops_f32, 0) << name;
    EXPECT_GE(kind.flops_f16 * 2, kind.flops_f32) << name;
    EXPECT_GT(kind.memory_bytes_per_second, 0) << name;
    EXPECT_GT(kind.link_bytes_per_second, 0) << name;
  }
  EXPECT_EQ(find_device_kind("abacus"), nullptr);
  EXPECT_THROW(device_kind("abacus"), Error);
}

TEST(TheLocalMachine, HasACoreAndMemory) {
  EXPECT_FALSE(local_machine().cores.empty());
  EXPECT_GT(local_machine().memory.count, 0);
}

}  // namespace
}  // namespace kerf
