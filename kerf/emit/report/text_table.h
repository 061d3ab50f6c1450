// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kerf {

// Columns as wide as their widest cell, two spaces apart. No rules, no colours: it goes into logs,
// files and terminals alike.
//
//   TextTable table({{"stage", Align::right}, {"device", Align::left}});
//   table.add({"0", "cpu:0"});
//   table.str();   // "stage  device\n    0  cpu:0\n"
class TextTable {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::right;
  };

  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell a column.
  void add(std::vector<std::string> cells);
  // Lines without trailing spaces.
  std::string str() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kerf
