// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a decider has learned, as JSON.

#include "cost/JsonReader.h"
#include "selection/Decider.h"

#include <cstdio>

using namespace moira;
using namespace moira::runtime;

static constexpr int64_t tableVersion = 1;

static std::string hex(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(value));
  return text;
}

static OrderedJson toJson(const Ratio &ratio) {
  return OrderedJson::array({ratio.count, ratio.mean});
}

static OrderedJson sparse(const std::vector<Ratio> &ratios) {
  OrderedJson list = OrderedJson::array();
  for (size_t c = 0; c < ratios.size(); ++c)
    if (ratios[c].count > 0)
      list.push_back(OrderedJson::array({c, ratios[c].count, ratios[c].mean}));
  return list;
}

std::string Decider::saveLearned() const {
  const LayerShape &shape = model->shape();
  OrderedJson buckets = OrderedJson::array();
  for (const Bucket &bucket : history.buckets) {
    OrderedJson ratios = sparse(bucket.ratios);
    if (!ratios.empty())
      buckets.push_back({{"load", bucket.key.load},
                         {"skew", bucket.key.skew},
                         {"expert", bucket.key.expert},
                         {"ratios", ratios}});
  }
  OrderedJson json = {{"format", "moira-learned"},
                      {"version", tableVersion},
                      {"candidates", hex(choices.hash())},
                      {"model", hex(model->hash())},
                      {"ranks", shape.ranks},
                      {"experts", shape.experts},
                      {"extremes", {extremeTried[0], extremeTried[1]}},
                      {"all", ::toJson(history.all)},
                      {"by_candidate", sparse(history.byCandidate)},
                      {"buckets", buckets}};
  return json.dump(1) + "\n";
}

static Ratio readRatio(const std::vector<JsonReader> &items, size_t first,
                       double limit, const JsonReader &place) {
  Ratio ratio;
  if (items.size() != first + 2) {
    place.fail(concat("expected ", first + 2, " numbers, got ", items.size()));
    return ratio;
  }
  ratio.count = items[first].number(0);
  ratio.mean = items[first + 1].number(0);
  place.require(ratio.mean > 0 && ratio.count <= limit,
                "expected a ratio above 0 of a count that is kept");
  return ratio;
}

static void readSparse(const JsonReader &json, double limit,
                       std::vector<Ratio> &ratios) {
  for (const JsonReader &item : json.items()) {
    std::vector<JsonReader> parts = item.items();
    int64_t candidate = parts.empty() ? 0 : parts[0].integer(0);
    Ratio ratio = readRatio(parts, 1, limit, item);
    if (candidate >= int64_t(ratios.size()))
      item.fail(concat("expected a candidate below ", ratios.size(), ", got ",
                       candidate));
    else if (json.ok())
      ratios[candidate] = ratio;
  }
}

Status Decider::loadLearned(const std::string &text, const std::string &name) {
  JsonDocument document(text, name, "moira-learned", tableVersion);
  JsonReader json = document.root();
  std::string candidates = json.at("candidates").text();
  json.require(candidates == hex(choices.hash()),
               "expected a table of these candidates (" + hex(choices.hash()) +
                   "), got one of others");
  const LayerShape &shape = model->shape();
  int64_t ranks = json.at("ranks").integer(1);
  json.require(ranks == shape.ranks, concat("expected a table of ", shape.ranks,
                                            " ranks, got ", ranks));
  int64_t experts = json.at("experts").integer(1);
  json.require(
      experts == shape.experts,
      concat("expected a table of ", shape.experts, " experts, got ", experts));
  // Ratios are of a model's predictions: of another's they say nothing.
  std::string predicted = json.at("model").text();
  json.require(predicted == hex(model->hash()),
               "expected a table of this model (" + hex(model->hash()) +
                   "), got one of another calibration, cluster or layer");
  History read(int(list.size()),
               wanted.joint ? int(choices.variants.size()) : 0);
  bool tried[2] = {false, false};
  std::vector<JsonReader> extremes = json.at("extremes").items();
  json.require(extremes.size() == 2, "expected two extremes");
  for (size_t i = 0; i < 2 && i < extremes.size(); ++i)
    tried[i] = extremes[i].flag();
  read.all =
      readRatio(json.at("all").items(), 0, History::allLimit, json.at("all"));
  readSparse(json.at("by_candidate"), History::candidateLimit,
             read.byCandidate);
  std::vector<JsonReader> buckets = json.at("buckets").items();
  json.require(buckets.size() <= size_t(History::maxBuckets),
               concat("expected at most ", History::maxBuckets,
                      " buckets, got ", buckets.size()));
  for (const JsonReader &item : buckets) {
    if (!json.ok())
      break;
    auto part = [&](const char *which) {
      return int32_t(std::min<int64_t>(item.at(which).integer(0), 1 << 20));
    };
    BucketKey key{part("load"), part("skew"), part("expert")};
    Bucket &bucket = read.find(key, -1);
    bucket.visits = 0;
    readSparse(item.at("ratios"), History::bucketLimit, bucket.ratios);
  }
  if (!document.ok())
    return document.status();
  history = std::move(read);
  forgetLast();
  extremeTried[0] = tried[0];
  extremeTried[1] = tried[1];
  allowance = wanted.initialLoss;
  lastTrial = -(int64_t(1) << 40);
  return Status();
}
