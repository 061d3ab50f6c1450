// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/traffic.h"

#include <algorithm>
#include <map>

namespace kerf::derive {
namespace {

double link_time(const Link& link, double bytes) {
  const double moving = link.bytes_per_second > 0 ? bytes / link.bytes_per_second * 1e9 : 0;
  return link.latency.count + moving;
}

// What one tensor costs each device. link: the receivers, once each. host_staged: those, and the
// maker once, host devices nothing. overlapped: the maker, once for each receiver.
Shipment ship(const Plan& plan, const Traffic& traffic, ValueId value, StageId from, double bytes,
              const std::vector<StageId>& users) {
  const bool staged = traffic.staged;
  const auto given = traffic.given.find(value);
  const DeviceId source = plan.stage(from).device;
  std::map<DeviceId, std::vector<StageId>> there;
  for (const StageId user : users) there[plan.stage(user).device].push_back(user);
  there.erase(source);
  Shipment shipment{value, from, 0, {}};
  for (const auto& [to, stages] : there) {
    const Link& link = plan.cluster.link(source, to);
    const double time = given != traffic.given.end() ? given->second : link_time(link, bytes);
    if (staged && !plan.cluster.device(source).host) {
      shipment.upload = std::max(shipment.upload, time);
    }
    const bool free = staged && plan.cluster.device(to).host;
    shipment.deliveries.push_back({to, stages, free ? 0 : time, link.shared});
  }
  return shipment;
}

}  // namespace

bool Traffic::uses_wire() const {
  for (const Shipment& shipment : shipments) {
    for (const Delivery& delivery : shipment.deliveries) {
      if (delivery.wire) return true;
    }
  }
  return false;
}

Traffic read_traffic(const Graph& graph, const Flow& flow, const Plan& plan) {
  Traffic traffic;
  traffic.staged = plan.comm_model == CommModel::host_staged;
  traffic.overlapped = plan.comm_model == CommModel::overlapped;
  for (const Cut& cut : plan.cuts) {
    if (cut.cost) traffic.given.emplace(cut.value, cut.cost->count);
  }
  for (std::size_t v = 0; v < graph.num_values(); ++v) {
    const Value& value = graph.values()[v];
    if (!flow.maker[v].valid() || value.scalar || flow.users[v].empty()) continue;
    const auto bytes = static_cast<double>(value.bytes(plan.micro_batch).count);
    add_shipment(plan, traffic, ValueId{v}, flow.maker[v], bytes, flow.users[v]);
  }
  return traffic;
}

void add_shipment(const Plan& plan, Traffic& traffic, ValueId value, StageId from, double bytes,
                  const std::vector<StageId>& users) {
  Shipment shipment = ship(plan, traffic, value, from, bytes, users);
  if (!shipment.deliveries.empty()) traffic.shipments.push_back(std::move(shipment));
}

std::vector<DeviceLoad> derive_loads(const Traffic& traffic, const Plan& plan) {
  std::vector<DeviceLoad> loads(plan.cluster.num_devices());
  for (const Stage& stage : plan.stages) loads[stage.device.index()].compute += stage.time;
  for (const Shipment& shipment : traffic.shipments) {
    const DeviceId from = plan.stage(shipment.from).device;
    loads[from.index()].communication.count += shipment.upload;
    for (const Delivery& delivery : shipment.deliveries) {
      const DeviceId payer = traffic.overlapped ? from : delivery.to;
      loads[payer.index()].communication.count += delivery.time;
    }
  }
  if (!traffic.overlapped) return loads;
  // Only what takes longer than the compute that it is sent beside.
  for (DeviceLoad& load : loads) {
    load.communication = std::max(Nanoseconds{}, load.communication - load.compute);
  }
  return loads;
}

}  // namespace kerf::derive
