// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/Calibration.h"
#include "base/Draws.h"
#include "cost/LeastSquares.h"
#include "cost/Topology.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace moira;
using namespace moira::runtime;

using Points = std::vector<CalibrationPoint>;

TEST(LeastSquares, SolvesAndStaysNonNegative) {
  // x = (2, 3) exactly.
  std::vector<double> x = solveNonNegative({1, 0, 0, 1, 1, 1}, {2, 3, 5}, 2);
  EXPECT_NEAR(x[0], 2, 1e-9);
  EXPECT_NEAR(x[1], 3, 1e-9);
  // Without the bound x[1] = -1.
  x = solveNonNegative({1, 1, 1, 2}, {2, 1}, 2);
  EXPECT_EQ(x[1], 0);
  EXPECT_NEAR(x[0], 1.5, 1e-9);
  // Nothing to explain, columns of zeros, columns that say the same.
  EXPECT_EQ(solveNonNegative({}, {}, 2), (std::vector<double>{0, 0}));
  EXPECT_EQ(solveNonNegative({0, 1, 0, 1}, {1, 1}, 2)[0], 0);
  x = solveNonNegative({1, 1, 2, 2}, {1, 2}, 2);
  EXPECT_NEAR(x[0] + x[1], 1, 1e-6);
}

/// Optimality (Karush, Kuhn and Tucker) on random systems: the gradient is zero
/// where x > 0 and does not pull upwards where x = 0.
TEST(LeastSquares, Optimal) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Draws draws({1, 2}, seed);
    int rows = 3 + int(draws.below(18)), columns = 1 + int(draws.below(8));
    std::vector<double> a(rows * columns), b(rows);
    for (double &value : a)
      value = draws.normal();
    for (double &value : b)
      value = draws.normal();
    std::vector<double> x = solveNonNegative(a, b, columns);
    for (int j = 0; j < columns; ++j) {
      ASSERT_GE(x[j], 0);
      double gradient = 0;
      for (int i = 0; i < rows; ++i) {
        double rest = b[i];
        for (int k = 0; k < columns; ++k)
          rest -= a[i * columns + k] * x[k];
        gradient += a[i * columns + j] * rest;
      }
      if (x[j] > 0 && rows >= columns)
        EXPECT_NEAR(gradient, 0, 1e-6) << seed;
      else
        EXPECT_LE(gradient, 1e-6) << seed;
    }
  }
}

TEST(Calibration, FindsWhatMadeThePoints) {
  Points points;
  auto kernel = [](double groups, double rows) {
    return 2e-6 + groups * (rows <= 8 ? 1e-6 + 1e-7 * (rows - 8) * 0
                                      : 1e-6 + 1e-7 * (rows - 8));
  };
  for (double rows : {8.0, 64.0, 512.0})
    points.push_back({Measured::Forward, 4, rows, kernel(4, rows)});
  points.push_back({Measured::Forward, 1, 8, kernel(1, 8)});
  for (double rows : {10.0, 1000.0}) {
    points.push_back({Measured::Gate, 1, rows, 1e-6 + 2e-9 * rows});
    points.push_back({Measured::Dispatch, 1, rows, 3e-9 * rows});
    points.push_back({Measured::Combine, 1, rows, 2e-6});
  }
  for (double messages : {1.0, 8.0})
    for (double bytes : {1e3, 1e6})
      points.push_back({Measured::Inter, messages, bytes,
                        5e-6 + 1e-6 * messages + bytes / 25e9});
  Result<Calibration> fitted = Calibration::fit(points, "here");
  ASSERT_TRUE(fitted.ok()) << fitted.status().message;
  EXPECT_NEAR(fitted->forward.call, 2e-6, 1e-11);
  for (double rows : {1.0, 8.0, 20.0, 100.0, 512.0, 4096.0})
    for (double groups : {1.0, 3.0, 64.0})
      EXPECT_NEAR(fitted->forward.call + groups * fitted->forward.group(rows),
                  kernel(groups, rows), 1e-3 * kernel(groups, rows))
          << rows;
  EXPECT_EQ(fitted->forward.group(0), 0);
  EXPECT_NEAR(fitted->backward.group(100), 2 * fitted->forward.group(100),
              1e-15);
  EXPECT_NEAR(fitted->gate.perRow, 2e-9, 1e-13);
  EXPECT_NEAR(fitted->dispatch.fixed, 0, 1e-13);
  EXPECT_NEAR(fitted->combine.perRow, 0, 1e-15);
  EXPECT_NEAR(fitted->inter.latency, 5e-6, 1e-10);
  EXPECT_NEAR(fitted->inter.overhead, 1e-6, 1e-10);
  EXPECT_NEAR(1 / fitted->inter.secondsPerByte, 25e9, 1e5);
  EXPECT_EQ(fitted->intra.latency, 0); // no points
  for (double error : fitted->maxError)
    EXPECT_LT(error, 1e-3);
}

/// Noise of 5 % and a kernel that works in tiles of 16 rows.
TEST(Calibration, SurvivesNoise) {
  auto kernel = [](double rows) {
    return 3e-6 + 2e-6 + 4e-8 * 16 * std::ceil(rows / 16);
  };
  Points points;
  Draws draws({7, 7}, 0);
  for (double rows : {1, 4, 16, 48, 128, 384, 1024, 4096})
    points.push_back({Measured::Forward, 1, rows,
                      kernel(rows) * (1 + 0.05 * draws.normal())});
  Calibration fitted = *Calibration::fit(points);
  double error = 0, count = 0;
  for (double rows = 16; rows < 8000; rows *= 1.37, ++count)
    error += std::abs(
        (fitted.forward.call + fitted.forward.group(rows)) / kernel(rows) - 1);
  EXPECT_LT(error / count, 0.07);
  EXPECT_GT(fitted.meanError[0], 0); // monotone, so not every point is hit
}

TEST(Calibration, JsonKeepsAllBits) {
  Points points;
  for (double rows : {1, 3, 77})
    for (Measured kind : {Measured::Forward, Measured::Backward,
                          Measured::Intra, Measured::Gate})
      points.push_back({kind, 3, rows, 1e-6 / 3 * (rows + 1)});
  Calibration fitted = *Calibration::fit(points, "a \"machine\"");
  Result<Calibration> read = Calibration::parse(fitted.toJson());
  ASSERT_TRUE(read.ok()) << read.status().message;
  EXPECT_EQ(read->toJson(), fitted.toJson());
  EXPECT_EQ(read->forward.seconds, fitted.forward.seconds);
  EXPECT_EQ(read->machine, "a \"machine\"");
}

TEST(Calibration, DescribesAClusterOfItsLinks) {
  Points points;
  for (double bytes : {1e3, 1e6}) {
    points.push_back({Measured::Intra, 1, bytes, 1e-6 + bytes / 50e9});
    points.push_back({Measured::Inter, 1, bytes, 5e-6 + bytes / 10e9});
  }
  Calibration fitted = *Calibration::fit(points, "two");
  Result<std::string> text = fitted.describe(2, 4);
  ASSERT_TRUE(text.ok());
  Result<Topology> topology = Topology::parse(*text);
  ASSERT_TRUE(topology.ok()) << topology.status().message;
  EXPECT_EQ(topology->ranks(), 8);
  EXPECT_NEAR(topology->messageSeconds(0, 1, 1000000), 1e-6 + 1e6 / 50e9, 1e-8);
  EXPECT_NEAR(topology->messageSeconds(0, 4, 1000000), 5e-6 + 1e6 / 10e9, 1e-7);
  Calibration one = *Calibration::fit({points[0], points[2]});
  EXPECT_TRUE(one.describe(1, 4).ok());
  EXPECT_EQ(one.describe(2, 1).status().message,
            "calibration: expected points of inter links that tell their "
            "bandwidth, got none");
  EXPECT_TRUE(Topology::parse(*one.describe(1, 1)).ok());
}

TEST(Calibration, RefusesOtherPointsAndFiles) {
  auto message = [](const Points &points) {
    return Calibration::fit(points).status().message;
  };
  EXPECT_EQ(message(Points(21, {Measured::Gate, 1, 1, 1})),
            "calibration: expected at most 20 points, got 21");
  EXPECT_EQ(message({{Measured::Forward, 1, 0, 1}}),
            "calibration: forward: expected rows above 0, got 0");
  EXPECT_EQ(message({{Measured::Intra, 0, 1, 1}}),
            "calibration: intra: expected at least 1 message, got 0");
  EXPECT_EQ(message({{Measured::Inter, 1, -1, 1}}),
            "calibration: inter: expected 0 or more bytes, got -1");
  EXPECT_EQ(message({{Measured::Gate, 1, 1, NAN}}),
            "calibration: gate: expected seconds above 0, got nan");
  EXPECT_TRUE(Calibration::fit({}).ok());

  auto fault = [](std::string text) {
    return Calibration::parse(text, "c.json").status().message;
  };
  std::string good = Calibration::fit({})->toJson();
  EXPECT_EQ(fault("{"), "c.json: expected JSON");
  EXPECT_EQ(fault("[]"), "c.json: expected an object, got array");
  EXPECT_EQ(fault("{}"), "c.json.format: expected a value, got none");
  auto replaced = [&](const std::string &from, const std::string &to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return fault(text);
  };
  EXPECT_EQ(replaced("\"version\": 1", "\"version\": 2"),
            "c.json: expected version 1, got 2");
  EXPECT_EQ(replaced("moira-calibration", "other"),
            "c.json: expected the format moira-calibration, got another");
  EXPECT_EQ(replaced("\"fixed\": 0.0", "\"fixed\": -1"),
            "c.json.gate.fixed: expected a number of at least 0, got -1");
  EXPECT_EQ(replaced("\"rows\": []", "\"rows\": [1]"),
            "c.json.forward: expected as many seconds as rows, got 0 and 1");
  EXPECT_EQ(replaced("\"rows\": []", "\"rows\": 3"),
            "c.json.forward.rows: expected an array, got number");
}
