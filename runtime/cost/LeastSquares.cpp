// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/LeastSquares.h"

#include <algorithm>
#include <cmath>

using namespace moira;
using namespace moira::runtime;

namespace {
/// The normal equations restricted to some columns.
class Equations {
public:
  Equations(const std::vector<double> &matrix,
            const std::vector<double> &wanted, int columns)
      : n(columns), gram(size_t(n) * n), right(n), scale(n, 1) {
    size_t rows = wanted.size();
    for (int i = 0; i < n; ++i) {
      double sum = 0;
      for (size_t k = 0; k < rows; ++k)
        sum += matrix[k * n + i] * matrix[k * n + i];
      scale[i] = sum > 0 ? std::sqrt(sum) : 1;
    }
    for (size_t k = 0; k < rows; ++k)
      for (int i = 0; i < n; ++i) {
        double a = matrix[k * n + i] / scale[i];
        right[i] += a * wanted[k];
        for (int j = 0; j < n; ++j)
          gram[size_t(i) * n + j] += a * matrix[k * n + j] / scale[j];
      }
    // Keeps columns that say the same apart.
    for (int i = 0; i < n; ++i)
      gram[size_t(i) * n + i] += 1e-12;
  }

  double gradient(const std::vector<double> &x, int i) const {
    double sum = right[i];
    for (int j = 0; j < n; ++j)
      sum -= gram[size_t(i) * n + j] * x[j];
    return sum;
  }

  /// Solves for the columns that are free, by Cholesky.
  std::vector<double> solve(const std::vector<bool> &free) const {
    std::vector<int> index;
    for (int i = 0; i < n; ++i)
      if (free[i])
        index.push_back(i);
    size_t m = index.size();
    std::vector<double> l(m * m), y(m), x(n);
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j <= i; ++j) {
        double sum = gram[size_t(index[i]) * n + index[j]];
        for (size_t k = 0; k < j; ++k)
          sum -= l[i * m + k] * l[j * m + k];
        l[i * m + j] =
            i == j ? std::sqrt(std::max(sum, 1e-18)) : sum / l[j * m + j];
      }
    for (size_t i = 0; i < m; ++i) {
      double sum = right[index[i]];
      for (size_t k = 0; k < i; ++k)
        sum -= l[i * m + k] * y[k];
      y[i] = sum / l[i * m + i];
    }
    for (size_t i = m; i-- > 0;) {
      double sum = y[i];
      for (size_t k = i + 1; k < m; ++k)
        sum -= l[k * m + i] * x[index[k]];
      x[index[i]] = sum / l[i * m + i];
    }
    return x;
  }

  const int n;
  std::vector<double> gram, right, scale;
};
} // namespace

std::vector<double>
moira::runtime::solveNonNegative(const std::vector<double> &matrix,
                                 const std::vector<double> &wanted,
                                 int columns) {
  Equations equations(matrix, wanted, columns);
  std::vector<double> x(columns);
  std::vector<bool> free(columns);
  // Frees the column that helps most, solves, and takes back what goes below
  // zero; each column's entry lowers the error, so this ends.
  for (int round = 0; round < 10 * columns; ++round) {
    int best = -1;
    double gain = 1e-10;
    for (int i = 0; i < columns; ++i)
      if (!free[i] && equations.gradient(x, i) > gain) {
        gain = equations.gradient(x, i);
        best = i;
      }
    if (best < 0)
      break;
    free[best] = true;
    for (;;) {
      std::vector<double> next = equations.solve(free);
      double step = 1;
      for (int i = 0; i < columns; ++i)
        if (free[i] && next[i] <= 0 && x[i] > next[i])
          step = std::min(step, x[i] / (x[i] - next[i]));
      bool inside = true;
      for (int i = 0; i < columns; ++i)
        inside &= !free[i] || next[i] > 0;
      if (inside) {
        x = next;
        break;
      }
      bool dropped = false;
      for (int i = 0; i < columns; ++i)
        if (free[i]) {
          x[i] += step * (next[i] - x[i]);
          if (x[i] <= 1e-14) {
            x[i] = 0;
            free[i] = false;
            dropped = true;
          }
        }
      if (!dropped)
        break;
    }
  }
  for (int i = 0; i < columns; ++i)
    x[i] /= equations.scale[i];
  return x;
}
