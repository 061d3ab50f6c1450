// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/device_model.h"

namespace kerf::partition {
namespace {

bool receiver_pays(const Problem& problem, DeviceId device) {
  if (problem.comm_model == CommModel::overlapped) return false;
  return problem.comm_model == CommModel::link || !problem.cluster.device(device).host;
}

bool maker_pays(const Problem& problem, DeviceId device) {
  if (problem.comm_model == CommModel::link) return problem.training;
  return problem.comm_model == CommModel::overlapped || !problem.cluster.device(device).host;
}

Rate rate_of(const Link& link) {
  return {link.latency.count, link.bytes_per_second > 0 ? 1e9 / link.bytes_per_second : 0.0};
}

// The best of several links, added one by one; equal ones leave the model exact.
class BestRate {
 public:
  explicit BestRate(bool& exact) : exact_(exact) {}
  void add(const Link& link) {
    const Rate rate = rate_of(link);
    if (!any_) best_ = rate;
    any_ = true;
    exact_ &= rate == best_;
    best_ = {std::min(best_.latency, rate.latency), std::min(best_.per_byte, rate.per_byte)};
  }
  Rate best() const { return best_; }

 private:
  bool& exact_;
  bool any_ = false;
  Rate best_;
};

void model_links(const Problem& problem, DeviceId self, std::span<const DeviceId> before,
                 std::span<const DeviceId> after, DeviceModel& device, bool& exact) {
  BestRate in(exact);
  BestRate out(exact);
  if (receiver_pays(problem, self)) {
    for (const DeviceId from : before) {
      if (from != self) in.add(problem.cluster.link(from, self));
    }
  }
  if (maker_pays(problem, self)) {
    for (const DeviceId to : after) {
      if (to == self) continue;
      // Under `link` what a maker pays for are gradients, which come the other way.
      const bool back = problem.comm_model == CommModel::link;
      out.add(back ? problem.cluster.link(to, self) : problem.cluster.link(self, to));
    }
  }
  // Times that are given by tensor are no rates: nothing is the least that they can be.
  if (!problem.transfer_times.empty()) {
    exact = false;
    return;
  }
  device.in = in.best();
  device.out = out.best();
}

DeviceModel model_device(const Problem& problem, DeviceId self) {
  const Cluster& cluster = problem.cluster;
  const int group = cluster.device(self).memory_group;
  DeviceModel device;
  device.slowness = 1 / cluster.device(self).speed;
  device.overlapped = problem.comm_model == CommModel::overlapped;
  device.alone = cluster.group(group).size() == 1;
  if (cluster.group_limited(group)) device.limit = cluster.group_limit(group).count;
  return device;
}

// May a tensor go to more than one device? `overlapped` charges each, the model one.
bool sends_twice(const Problem& problem) {
  if (problem.comm_model != CommModel::overlapped || problem.cluster.num_devices() <= 2)
    return false;
  const Graph& graph = problem.graph;
  for (std::size_t i = 0; i < graph.num_values(); ++i) {
    const Value& value = graph.values()[i];
    if (value.scalar || value.origin != Origin::node) continue;
    if (graph.consumers(ValueId{i}).size() > 1) return true;
  }
  return false;
}

// `ordered`: the devices follow each other so, else in whatever order.
ChainModel make_model(const Problem& problem, std::span<const DeviceId> devices, bool ordered) {
  ChainModel model;
  // How many micro-batches a training step keeps depends on the schedule: one at least.
  model.n_microbatches = problem.training ? 1 : problem.n_microbatches;
  model.exact = !problem.training && !sends_twice(problem);
  for (std::size_t p = 0; p < devices.size(); ++p) {
    DeviceModel device = model_device(problem, devices[p]);
    model_links(problem, devices[p], ordered ? devices.first(p) : devices,
                ordered ? devices.subspan(p + 1) : devices, device, model.exact);
    model.exact &= device.alone;
    model.devices.push_back(device);
    model.ids.push_back(devices[p]);
  }
  return model;
}

}  // namespace

std::vector<DeviceId> given_order(const Cluster& cluster) {
  std::vector<DeviceId> order;
  for (std::size_t d = 0; d < cluster.num_devices(); ++d) order.emplace_back(d);
  return order;
}

ChainModel make_chain_model(const Problem& problem, std::span<const DeviceId> order) {
  return make_model(problem, order, true);
}

ChainModel make_free_model(const Problem& problem) {
  return make_model(problem, given_order(problem.cluster), false);
}

double receive_time(const Problem& problem, DeviceId from, DeviceId to, ValueId value) {
  if (!receiver_pays(problem, to)) return 0;
  // A tensor of the device's own is there.
  return from == to ? 0 : problem.transfer_time(value, from, to).count;
}

}  // namespace kerf::partition
