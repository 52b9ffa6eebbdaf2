#include "bench/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/markup.h"

namespace ucm::bench {
namespace {

constexpr double kWidth = 760, kHeight = 360;
constexpr double kLeft = 84, kRight = 130, kTop = 36, kBottom = 52;
constexpr double kBarHeight = 22, kBarGap = 12;
constexpr std::array kColours{"#1b6ca8", "#d1495b", "#2e933c", "#8f5fbf", "#c77d00", "#4f6d7a"};

const char* colour_of(const std::string& name) {
  // Not by its place: a way keeps its colour where others are left out.
  std::size_t sum = 0;
  for (const char c : name) sum = sum * 31 + static_cast<unsigned char>(c);
  static constexpr std::array kKnown{"rdma_cm", "exchange", "tcp", "packets3", "packets2"};
  const auto* known = std::find(kKnown.begin(), kKnown.end(), name);
  return kColours[known != kKnown.end() ? static_cast<std::size_t>(known - kKnown.begin()) : sum % kColours.size()];
}

// From the values that have to be shown to where they are shown.
class Range {
 public:
  Range(Scale scale, double from, double to) : scale_(scale), from_(from), to_(to) {}

  void show(double value) {
    if (!can_show(value)) return;
    low_ = std::min(low_, value);
    high_ = std::max(high_, value);
  }
  bool can_show(double value) const { return scale_ == Scale::kLinear || value > 0; }
  // After the last show().
  void settle() {
    if (low_ > high_) low_ = high_ = 1;
    if (scale_ == Scale::kLinear) {
      low_ = 0;
      step_ = std::pow(10, std::floor(std::log10(std::max(high_, 1e-9))));
      if (high_ / step_ < 3) step_ /= 2;
      high_ = std::ceil(high_ / step_) * step_;
    } else {
      low_ = std::pow(10, std::floor(std::log10(low_)));
      high_ = std::pow(10, std::ceil(std::log10(high_ * 1.001)));
    }
  }
  double place(double value) const {
    const double part =
        scale_ == Scale::kLinear ? (value - low_) / (high_ - low_) : std::log(value / low_) / std::log(high_ / low_);
    return from_ + part * (to_ - from_);
  }
  std::vector<double> ticks() const {
    std::vector<double> ticks;
    for (double tick = low_; tick <= high_ * 1.0001; tick = scale_ == Scale::kLinear ? tick + step_ : tick * 10) {
      ticks.push_back(tick);
    }
    return ticks;
  }

 private:
  Scale scale_;
  double from_, to_;
  double low_ = std::numeric_limits<double>::max();
  double high_ = std::numeric_limits<double>::lowest();
  double step_ = 1;
};

std::string tick_text(double value) {
  if (value >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", value);
}

std::string label(double x, double y, const char* anchor, const std::string& content, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor, more,
                     escaped_markup(content));
}

std::string open_svg(double height, const std::string& title) {
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n", kWidth, height,
                     escaped_markup(title)) +
         label(kLeft, 18, "start", title, "class=\"title\"");
}

std::string grid(const Range& x, const Range& y, const Axis& x_axis, const Axis& y_axis) {
  std::string svg;
  const double bottom = kHeight - kBottom;
  for (const double tick : x.ticks()) {
    const double at = x.place(tick);
    svg += fmt::format("<path class=\"grid\" d=\"M{0:.1f} {1:.1f}V{2:.1f}\"/>\n", at, kTop, bottom);
    svg += label(at, bottom + 18, "middle", tick_text(tick));
  }
  for (const double tick : y.ticks()) {
    const double at = y.place(tick);
    svg += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", kLeft, at, kWidth - kRight);
    svg += label(kLeft - 8, at + 4, "end", tick_text(tick));
  }
  svg += label((kLeft + kWidth - kRight) / 2, kHeight - 12, "middle", x_axis.text);
  const double middle = (kTop + bottom) / 2;
  svg += label(18, middle, "middle", y_axis.text, fmt::format("transform=\"rotate(-90 18 {:.1f})\"", middle).c_str());
  return svg;
}

}  // namespace

std::string line_plot(const std::string& title, const Axis& x_axis, const Axis& y_axis,
                      const std::vector<Curve>& curves) {
  Range x(x_axis.scale, kLeft, kWidth - kRight);
  Range y(y_axis.scale, kHeight - kBottom, kTop);
  for (const Curve& curve : curves) {
    for (const auto& [at, value] : curve.points) {
      x.show(at);
      y.show(value);
    }
  }
  x.settle();
  y.settle();
  std::string svg = open_svg(kHeight, title) + grid(x, y, x_axis, y_axis);
  double legend = kTop + 8;
  for (const Curve& curve : curves) {
    const char* colour = colour_of(curve.name);
    std::string path;
    std::string dots;
    for (const auto& [at, value] : curve.points) {
      if (!x.can_show(at) || !y.can_show(value)) continue;
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x.place(at), y.place(value));
      if (curve.points.size() <= 16) {
        dots += fmt::format(
            "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{}: {:g}, {:.4g}</title></circle>\n",
            x.place(at), y.place(value), colour, escaped_markup(curve.name), at, value);
      }
    }
    svg += fmt::format("<path class=\"curve\" stroke=\"{}\" d=\"{}\"/>\n", colour, path) + dots;
    svg += fmt::format("<path class=\"curve\" stroke=\"{}\" d=\"M{:.1f} {:.1f}h18\"/>\n", colour, kWidth - kRight + 10,
                       legend);
    svg += label(kWidth - kRight + 34, legend + 4, "start", curve.name);
    legend += 20;
  }
  return svg + "</svg>\n";
}

std::string stacked_bars(const std::string& title, const std::string& unit, const std::vector<Bar>& bars) {
  Range x(Scale::kLinear, kLeft, kWidth - kRight);
  for (const Bar& bar : bars) {
    double length = 0;
    for (const auto& part : bar.parts) length += part.second;
    x.show(length);
  }
  x.settle();
  const double bottom = kTop + static_cast<double>(bars.size()) * (kBarHeight + kBarGap);
  std::string svg = open_svg(bottom + kBottom, title);
  for (const double tick : x.ticks()) {
    svg += fmt::format("<path class=\"grid\" d=\"M{0:.1f} {1:.1f}V{2:.1f}\"/>\n", x.place(tick), kTop, bottom);
    svg += label(x.place(tick), bottom + 18, "middle", tick_text(tick));
  }
  svg += label((kLeft + kWidth - kRight) / 2, bottom + 38, "middle", unit);
  double top = kTop + kBarGap / 2;
  std::vector<std::string> legend;
  for (const Bar& bar : bars) {
    svg += label(kLeft - 8, top + kBarHeight * 0.7, "end", bar.name);
    double from = 0;
    for (const auto& [name, length] : bar.parts) {
      auto known = std::find(legend.begin(), legend.end(), name);
      if (known == legend.end()) known = legend.insert(legend.end(), name);
      const char* colour = kColours[static_cast<std::size_t>(known - legend.begin()) % kColours.size()];
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" fill=\"{}\"><title>{}: {:.1f} "
          "{}</title></rect>\n",
          x.place(from), top, x.place(from + length) - x.place(from), kBarHeight, colour, escaped_markup(name), length,
          escaped_markup(unit));
      from += length;
    }
    top += kBarHeight + kBarGap;
  }
  for (std::size_t i = 0; i < legend.size(); ++i) {
    const double at = kTop + 10 + 18 * static_cast<double>(i);
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n",
                       kWidth - kRight + 10, at - 10, kColours[i % kColours.size()]);
    svg += label(kWidth - kRight + 28, at, "start", legend[i]);
  }
  return svg + "</svg>\n";
}

}  // namespace ucm::bench
