// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/row_times.h"

namespace kerf {
namespace {

Nanoseconds computing(const UnitWork& unit, std::int64_t rows, double nanoseconds_per_byte) {
  const Bytes read = unit.is_table ? unit.row * rows : unit.bytes;
  return Nanoseconds{static_cast<double>(read.count) * nanoseconds_per_byte};
}

}  // namespace

std::vector<RowTimes> row_times(std::span<const UnitWork> units,
                                std::span<const WeightSpeed> speeds, double bytes_per_nanosecond,
                                Nanoseconds each) {
  std::vector<RowTimes> out;
  for (const WeightSpeed& speed : speeds) {
    RowTimes times{speed.rows, {}, {}};
    for (const UnitWork& unit : units) {
      times.device_time.push_back(computing(unit, speed.rows, speed.device) + each);
      const Nanoseconds moved{static_cast<double>((unit.row * speed.rows).count) /
                              bytes_per_nanosecond};
      times.host_time.push_back(unit.may_be_host ? computing(unit, speed.rows, speed.host) + moved +
                                                       kHostWait + each
                                                 : kNotOnTheHost);
    }
    out.push_back(std::move(times));
  }
  return out;
}

}  // namespace kerf
