// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/text_table.h"

#include <algorithm>

#include "kerf/base/error.h"

namespace kerf {
namespace {

std::string padded(const std::string& cell, std::size_t width, TextTable::Align align) {
  const std::string space(width - std::min(width, cell.size()), ' ');
  return align == TextTable::Align::left ? cell + space : space + cell;
}

}  // namespace

void TextTable::add(std::vector<std::string> cells) {
  KERF_CHECK(cells.size() == columns_.size(), "a cell for each column");
  rows_.push_back(std::move(cells));
}

std::string TextTable::str() const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(column.title.size());
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string out;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      line += (c == 0 ? "" : "  ") + padded(cell_of(c), widths[c], columns_[c].align);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  add_line([&](std::size_t c) -> const std::string& { return columns_[c].title; });
  for (const auto& row : rows_) {
    add_line([&](std::size_t c) -> const std::string& { return row[c]; });
  }
  return out;
}

}  // namespace kerf
