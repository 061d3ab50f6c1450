// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/placement.h"

#include <algorithm>

namespace kerf::partition::fx {

Placement::Placement(const OpTable& table, std::span<const Device> devices)
    : table_(&table),
      bytes_(devices.size(), 0),
      device_(table.size(), kNowhere),
      readers_(table.size() * devices.size(), 0),
      holders_(table.item_bytes.size() * devices.size(), 0) {
  for (const Device& device : devices) limit_.push_back(device.memory);
}

bool Placement::fits() const {
  for (std::size_t d = 0; d < limit_.size(); ++d) {
    if (over(d)) return false;
  }
  return true;
}

void Placement::leave(std::size_t op) {
  const SlotId d = device_[op];
  const std::size_t count = limit_.size();
  bytes_[d] -= table_->own_bytes[op];
  for (const std::uint32_t item : table_->shared(op)) {
    if (--holders_[item * count + d] == 0) bytes_[d] -= table_->item_bytes[item];
  }
  const std::int64_t output = table_->output_bytes[op];
  const std::uint32_t readers = readers_[op * count + d];  // they now read it from elsewhere
  bytes_[d] += table_->charge_every_reader ? output * readers : (readers > 0 ? output : 0);
  for (const OpTable::Edge& edge : table_->in(op)) {
    const std::uint32_t left = --readers_[edge.op * count + d];
    if (device_[edge.op] == d) continue;
    if (table_->charge_every_reader || left == 0) bytes_[d] -= table_->output_bytes[edge.op];
  }
  device_[op] = kNowhere;
}

void Placement::enter(std::size_t op, SlotId d) {
  const std::size_t count = limit_.size();
  bytes_[d] += table_->own_bytes[op];
  for (const std::uint32_t item : table_->shared(op)) {
    if (holders_[item * count + d]++ == 0) bytes_[d] += table_->item_bytes[item];
  }
  const std::int64_t output = table_->output_bytes[op];
  const std::uint32_t readers = readers_[op * count + d];
  bytes_[d] -= table_->charge_every_reader ? output * readers : (readers > 0 ? output : 0);
  for (const OpTable::Edge& edge : table_->in(op)) {
    const std::uint32_t before = readers_[edge.op * count + d]++;
    if (device_[edge.op] == d) continue;
    if (table_->charge_every_reader || before == 0) bytes_[d] += table_->output_bytes[edge.op];
  }
  device_[op] = d;
}

void Placement::move(std::size_t op, SlotId device) {
  if (device_[op] == device) return;
  if (device_[op] != kNowhere) leave(op);
  if (device != kNowhere) enter(op, device);
}

bool Placement::try_move(std::size_t op, SlotId device) {
  const SlotId from = device_[op];
  const bool from_over = from != kNowhere && over(from);
  const bool to_over = over(device);
  move(op, device);
  // Leaving can cost too: what stays behind reads the op's output from elsewhere.
  if ((over(device) && !to_over) || (from != kNowhere && over(from) && !from_over)) {
    move(op, from);
    return false;
  }
  return true;
}

CriticalPath::CriticalPath(const OpTable& table)
    : table_(&table), head_(table.size()), tail_(table.size()) {}

double CriticalPath::update(const std::vector<SlotId>& device) {
  length_ = 0;
  for (std::size_t op = 0; op < head_.size(); ++op) {
    double before = 0;
    for (const OpTable::Edge& edge : table_->in(op)) {
      const double comm = device[edge.op] == device[op] ? 0 : edge.seconds;
      before = std::max(before, head_[edge.op] + comm);
    }
    head_[op] = before + table_->time[op];
    length_ = std::max(length_, head_[op]);
  }
  for (std::size_t op = head_.size(); op-- > 0;) {
    double after = 0;
    for (const OpTable::Edge& edge : table_->out(op)) {
      const double comm = device[edge.op] == device[op] ? 0 : edge.seconds;
      after = std::max(after, comm + tail_[edge.op]);
    }
    tail_[op] = table_->time[op] + after;
  }
  return length_;
}

double CriticalPath::through(std::size_t op, SlotId device,
                             const std::vector<SlotId>& devices) const {
  double before = 0;
  for (const OpTable::Edge& edge : table_->in(op)) {
    before = std::max(before, head_[edge.op] + (devices[edge.op] == device ? 0 : edge.seconds));
  }
  double after = 0;
  for (const OpTable::Edge& edge : table_->out(op)) {
    after = std::max(after, tail_[edge.op] + (devices[edge.op] == device ? 0 : edge.seconds));
  }
  return before + table_->time[op] + after;
}

}  // namespace kerf::partition::fx
