// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/lower/split_model.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "kerf/base/infinity.h"
#include "kerf/base/topological_order.h"
#include "kerf/graph/has_backward.h"
#include "kerf/plan/schedule/schedule.h"

namespace kerf::partition {
namespace {

struct Figures {
  double speed = 1;
  double memory = kInfinity;  // its share of what it shares, for searches
  double limit = kInfinity;
  bool host = false;
  auto key() const { return std::tuple(speed, limit); }
};

class ModelMaker {
 public:
  ModelMaker(const Problem& problem, ModelUse use)
      : problem_(problem), cluster_(problem.cluster), use_(use) {}

  SplitModel make(std::vector<std::size_t> unit_of) {
    model_.unit_of = std::move(unit_of);
    model_.units = collect_units(problem_, model_.unit_of);
    model_.order = topological_order(model_.units);
    collect_devices();
    place_devices();
    find_link();
    make_instance();
    return std::move(model_);
  }

 private:
  void collect_devices() {
    for (const Device& device : cluster_.devices) {
      Figures figures{device.speed, kInfinity, kInfinity, device.host};
      const int group = device.memory_group;
      if (cluster_.group_limited(group)) {
        const std::size_t sharers = cluster_.group(group).size();
        if (sharers > 1) model_.exact = false;
        figures.limit = static_cast<double>(cluster_.group_limit(group).count);
        figures.memory =
            figures.limit / (use_ == ModelUse::search ? static_cast<double>(sharers) : 1);
      }
      figures_.push_back(figures);
    }
  }

  // The device that becomes the model's CPU, if one does.
  std::size_t odd_device() const {
    const std::size_t count = figures_.size();
    if (problem_.comm_model == CommModel::host_staged) {
      const auto is_host = [](const Figures& f) { return f.host; };
      const auto hosts = std::count_if(figures_.begin(), figures_.end(), is_host);
      const auto host = std::find_if(figures_.begin(), figures_.end(), is_host);
      return hosts == 1 && count > 1 ? static_cast<std::size_t>(host - figures_.begin()) : count;
    }
    std::map<decltype(Figures{}.key()), std::vector<std::size_t>> classes;
    for (std::size_t d = 0; d < count; ++d) classes[figures_[d].key()].push_back(d);
    if (classes.size() != 2) return count;
    // Of two unlike devices the slower one, as a CPU would be.
    for (const auto& [key, members] : classes) {
      if (members.size() == 1) return members.front();
    }
    return count;
  }

  void place_devices() {
    const std::size_t odd = odd_device();
    for (std::size_t d = 0; d < figures_.size(); ++d) {
      if (d != odd) model_.devices.emplace_back(d);
    }
    place::Devices& out = modelled_;
    out.cpu = SlotId{model_.devices.size()};
    out.num_devices = out.cpu + (odd < figures_.size() ? 1 : 0);
    // Training: a tensor costs its readers, and its gradient the maker. With one reader that is how
    // host_staged charges; with more it is less than the truth.
    out.charging = problem_.comm_model == CommModel::host_staged ||
                           (problem_.training && problem_.comm_model == CommModel::link)
                       ? Charging::host_staged
                       : Charging::link;
    if (problem_.training) model_.exact = false;
    std::set<double> speeds;
    for (const DeviceId device : model_.devices) {
      const Figures& figures = figures_[device.index()];
      speeds.insert(figures.speed);
      out.slowness.push_back(1 / figures.speed);
      out.memory.push_back(figures.memory);
    }
    if (speeds.size() == 1) {
      accelerator_speed_ = *speeds.begin();
      out.slowness.assign(out.cpu, 1);
    }
    if (!out.has_cpu()) return;
    cpu_speed_ = figures_[odd].speed;
    out.memory.push_back(figures_[odd].memory);
    model_.devices.emplace_back(odd);
  }

  // One link for all: the fastest figures of any for bounds, the mean of all for searches.
  void find_link() {
    const std::size_t count = cluster_.num_devices();
    const bool staged = problem_.comm_model == CommModel::host_staged;
    const auto hosts = static_cast<std::size_t>(
        std::count_if(figures_.begin(), figures_.end(), [](const Figures& f) { return f.host; }));
    double least_latency = kInfinity;
    double least_per_byte = kInfinity;
    double latency = 0;
    double per_byte = 0;
    double pairs = 0;
    for (std::size_t a = 0; a < count; ++a) {
      for (std::size_t b = 0; b < count; ++b) {
        if (a == b) continue;
        const Link& link = cluster_.link(DeviceId{a}, DeviceId{b});
        const double each = link.bytes_per_second > 0 ? 1e9 / link.bytes_per_second : 0;
        if (pairs > 0 && (link.latency.count != least_latency || each != least_per_byte)) {
          model_.exact = false;
        }
        least_latency = std::min(least_latency, link.latency.count);
        least_per_byte = std::min(least_per_byte, each);
        latency += link.latency.count;
        per_byte += each;
        ++pairs;
      }
    }
    if (pairs == 0) return;  // nothing to send
    latency_ = use_ == ModelUse::bound ? least_latency : latency / pairs;
    per_byte_ = use_ == ModelUse::bound ? least_per_byte : per_byte / pairs;
    // Several hosts pay nothing where a model's accelerators do; what is hidden costs nothing.
    const bool all_hosts = staged && hosts == count;
    const bool some_hosts = staged && hosts > 1 && !all_hosts;
    const bool overlapped = problem_.comm_model == CommModel::overlapped;
    if (some_hosts || overlapped) model_.exact = false;
    const bool relaxed = use_ == ModelUse::bound && (some_hosts || overlapped);
    free_ = all_hosts || relaxed;
    if (free_) latency_ = per_byte_ = 0;
  }

  void make_instance() {
    place::InstanceBuilder builder(std::move(modelled_));
    add_units(builder);
    add_nets(builder);
    builder.set_order(find_order());
    model_.instance = std::move(builder).build();
  }

  void add_units(place::InstanceBuilder& builder) {
    std::vector<std::size_t> users(problem_.graph.storages().size());
    const std::vector<std::int64_t> copies = problem_.weight_copies();
    for (const Unit& unit : model_.units) {
      for (const StorageId storage : unit.weights) ++users[storage.index()];
    }
    for (UnitId u{0}; u < model_.units.size(); ++u) {
      const Unit& unit = model_.units[u];
      place::Unit placed{unit.time / accelerator_speed_, unit.time / cpu_speed_};
      for (const StorageId storage : unit.weights) {
        const std::size_t sharers = users[storage.index()];
        if (sharers > 1 && use_ == ModelUse::bound) continue;
        // For searches a share each: right where the users stay together.
        placed.bytes +=
            static_cast<double>(problem_.graph.storage(storage).bytes.eval(problem_.micro_batch()) *
                                copies[storage.index()]) /
            static_cast<double>(sharers);
      }
      if (problem_.training && use_ == ModelUse::search) placed.bytes += kept_bytes(unit);
      builder.add_unit(placed);
      for (const std::size_t before : unit.before) {
        edges_.emplace_back(UnitId{before}, u);
        builder.add_edge(UnitId{before}, u);
      }
    }
  }

  // What a unit keeps for its backward, for as many micro-batches as the schedule keeps on average
  // over the devices.
  double kept_bytes(const Unit& unit) const {
    const double devices = static_cast<double>(cluster_.num_devices());
    const double all = problem_.n_microbatches;
    const ScheduleKind& schedule = schedule_kind(problem_.schedule);
    const double live = schedule.make == fill_drain    ? all
                        : schedule.make == zero_bubble ? std::min(all, devices)
                                                       : std::min(all, (devices + 1) / 2);
    const double scale = problem_.profile.batch > 0
                             ? static_cast<double>(problem_.micro_batch()) /
                                   static_cast<double>(problem_.profile.batch)
                             : 1;
    double bytes = 0;
    for (const NodeId node : unit.nodes) {
      if (!problem_.is_recomputed(node)) {
        bytes += static_cast<double>(problem_.profile.node(node).saved.count);
      }
    }
    return bytes * scale * live;
  }

  // How often each side pays for a tensor: forward, and for its gradient.
  double times_paid(ValueId tensor) const {
    if (!problem_.training) return 1;
    const auto users = problem_.graph.consumers(tensor);
    const bool comes_back = problem_.graph.value(tensor).requires_grad &&
                            std::all_of(users.begin(), users.end(), [&](NodeId user) {
                              return has_backward(problem_.graph, user);
                            });
    if (problem_.comm_model == CommModel::host_staged) return comes_back ? 2 : 1;
    // Without a gradient the maker pays nothing: a bound must not charge it.
    return comes_back || use_ == ModelUse::search ? 1 : 0;
  }

  // A unit may make several tensors.
  void add_nets(place::InstanceBuilder& builder) {
    std::map<ValueId, std::vector<UnitId>> readers;
    for (UnitId u{0}; u < model_.units.size(); ++u) {
      for (const ValueId tensor : model_.units[u].tensors) readers[tensor].push_back(u);
    }
    num_places_ = UnitId{model_.units.size()};
    for (const auto& [tensor, units] : readers) {
      const Value& value = problem_.graph.value(tensor);
      const UnitId maker{model_.unit_of[value.producer.index()]};
      const std::optional<Nanoseconds> given = problem_.given_transfer(tensor);
      const double by_link =
          latency_ + per_byte_ * static_cast<double>(value.bytes(problem_.micro_batch()).count);
      const double cost = given && !free_ ? given->count : by_link;
      builder.add_net(cost * times_paid(tensor), maker, units);
      edges_.emplace_back(maker, num_places_);
      for (const UnitId reader : units) edges_.emplace_back(num_places_, reader);
      ++num_places_;
    }
  }

  // Units in the order in which they could run, first come first served; a tensor takes its turn as
  // units do.
  place::Order find_order() const {
    const place::UnitRows next = to_rows(num_places_, edges_);
    place::Order order = first_come_order<UnitId>(num_places_, each_next_of(next));
    std::erase_if(order, [&](UnitId place) { return place >= model_.units.size(); });
    return order;
  }

  const Problem& problem_;
  const Cluster& cluster_;
  ModelUse use_;
  SplitModel model_;
  std::vector<Figures> figures_;  // by device of the cluster
  place::Devices modelled_;
  PairsOf<UnitId, UnitId> edges_;  // of units, and of tensors, which are numbered after them
  UnitId num_places_{0};
  double accelerator_speed_ = 1;  // 1 when they differ: slowness has it
  double cpu_speed_ = 1;
  double latency_ = 0;
  double per_byte_ = 0;
  bool free_ = false;  // transfers cost nobody anything
};

}  // namespace

std::vector<DeviceId> SplitModel::to_devices(std::span<const SlotId> device) const {
  std::vector<DeviceId> out;
  for (const SlotId number : device) out.push_back(devices[number]);
  return out;
}

place::Split SplitModel::from_devices(std::span<const DeviceId> device_of_node) const {
  std::vector<SlotId> number(devices.size());
  for (SlotId d{0}; d < devices.size(); ++d) number[devices[d].index()] = d;
  place::Split out(units.size());
  for (std::size_t u = 0; u < units.size(); ++u) {
    out[u] = number[device_of_node[units[u].nodes.front().index()].index()];
  }
  return out;
}

SplitModel make_split_model(const Problem& problem, ModelUse use) {
  return make_split_model(problem, use, indivisible_units(problem.graph));
}

SplitModel make_split_model(const Problem& problem, ModelUse use,
                            std::vector<std::size_t> unit_of) {
  return ModelMaker(problem, use).make(std::move(unit_of));
}

}  // namespace kerf::partition
