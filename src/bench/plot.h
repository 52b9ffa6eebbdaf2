// Plots as SVG, with no script and nothing to load.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ucm::bench {

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y; ascending x
};

enum class Scale { kLinear, kLogarithmic };

struct Axis {
  std::string text;
  Scale scale = Scale::kLinear;
};

// Curves with the same name have the same colour in every plot. Points that a logarithmic axis cannot show are left
// out.
std::string line_plot(const std::string& title, const Axis& x, const Axis& y, const std::vector<Curve>& curves);

struct Bar {
  std::string name;
  std::vector<std::pair<std::string, double>> parts;  // their names and lengths
};
// Horizontal bars, their parts one after the other.
std::string stacked_bars(const std::string& title, const std::string& unit, const std::vector<Bar>& bars);

}  // namespace ucm::bench
