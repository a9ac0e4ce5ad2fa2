// SPDX-License-Identifier: Apache-2.0
// Members that a module holds and does not register, and lists of copies of one layer.
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "tandem/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

// What each of these modules says when it is made and asked for its parameters: an error's text or
// a warning's.
template <class Net>
std::string said() {
  testing::internal::CaptureStderr();
  const std::string error = thrown([] {
    Net net;
    net.parameters();
    net.state_dict();
  });
  const std::string warning = testing::internal::GetCapturedStderr();
  return error == "nothing was thrown" ? warning : error;
}

struct LostParam : nn::Module {
  nn::Linear fc1{2, 2};
  Param scale{ones({7})};
  nn::Linear fc2{2, 2};
  LostParam() { TD_REGISTER(fc1, fc2); }
};
struct LostParamAssignedLater : nn::Module {
  nn::Linear fc1{2, 2};
  Param scale;
  LostParamAssignedLater() {
    TD_REGISTER(fc1);
    scale = Param(ones({7}));
  }
};
struct LostOptionalParam : nn::Module {
  std::optional<Param> scale{ones({7})};
  nn::Linear fc1{2, 2};
  LostOptionalParam() { TD_REGISTER(fc1); }
};
struct LostVector : nn::Module {
  nn::Linear fc1{2, 2};
  std::vector<nn::Linear> stack = nn::repeat(3, [] { return nn::Linear(2, 2); });
  LostVector() { TD_REGISTER(fc1); }
};
struct LostVectorOfOne : nn::Module {
  std::vector<nn::Linear> stack;
  nn::Linear fc1{2, 2};
  LostVectorOfOne() {
    stack.emplace_back(2, 2);
    TD_REGISTER(fc1);
  }
};
struct LostVectorFilledLater : nn::Module {
  nn::Linear fc1{2, 2};
  std::vector<nn::Linear> stack;
  LostVectorFilledLater() {
    TD_REGISTER(fc1);
    stack.emplace_back(2, 2);
    stack.emplace_back(2, 2);
  }
};
struct LostArray : nn::Module {
  nn::Linear fc1{2, 2};
  std::array<nn::Linear, 2> pair{nn::Linear(2, 2), nn::Linear(2, 2)};
  LostArray() { TD_REGISTER(fc1); }
};
struct LostOptionalLater : nn::Module {
  nn::Linear fc1{2, 2};
  std::optional<nn::Linear> extra;
  LostOptionalLater() {
    TD_REGISTER(fc1);
    extra.emplace(2, 2);
  }
};
struct LostInMap : nn::Module {
  nn::Linear fc1{2, 2};
  std::map<std::string, nn::Linear> heads;
  LostInMap() {
    heads.emplace("a", nn::Linear(2, 5));
    TD_REGISTER(fc1);
  }
};
struct LostBehindPointer : nn::Module {
  nn::Linear fc1{2, 2};
  std::unique_ptr<nn::Linear> head = std::make_unique<nn::Linear>(2, 5);
  LostBehindPointer() { TD_REGISTER(fc1); }
};
struct LostInner : nn::Module {
  nn::Linear fc1{2, 2};
  LostInMap inner;
  LostInner() { TD_REGISTER(fc1, inner); }
};

TEST(Registration, SaysWhichMemberIsLost) {
  const struct {
    const char* name;
    std::string (*said)();
    std::vector<const char*> parts;
  } cases[] = {
      {"param", said<LostParam>, {"LostParam holds a Param f32[7], between fc1 and fc2,"}},
      {"assigned later", said<LostParamAssignedLater>, {"holds a Param f32[7], after fc1,"}},
      {"optional", said<LostOptionalParam>, {"holds a Param f32[7], before fc1,"}},
      {"vector", said<LostVector>, {"LostVector holds a vector of 3 Linear, after fc1,"}},
      {"vector of one", said<LostVectorOfOne>, {"holds a vector of 1 Linear, before fc1,"}},
      {"filled later", said<LostVectorFilledLater>, {"holds a vector of 2 Linear, after fc1,"}},
      {"array", said<LostArray>, {"holds a layer of type Linear, after fc1,"}},
      {"emplaced later", said<LostOptionalLater>, {"holds a layer of type Linear, after fc1,"}},
      {"map", said<LostInMap>, {"LostInMap made 2 Param(s)", "f32[5, 2]", "f32[5]"}},
      {"pointer", said<LostBehindPointer>, {"LostBehindPointer made 2 Param(s)", "f32[5, 2]"}},
      {"inner", said<LostInner>, {"LostInMap made 2 Param(s)"}},
  };
  for (const auto& c : cases) {
    const std::string text = c.said();
    for (const char* part : c.parts) EXPECT_TRUE(has(text, part)) << c.name << ": " << text;
    EXPECT_TRUE(has(text, "neither trained nor saved")) << c.name << ": " << text;
    EXPECT_TRUE(has(text, "TD_REGISTER")) << c.name << ": " << text;
    EXPECT_FALSE(has(text, "LostInner made")) << text;
  }
}

struct TiedWords : nn::Module {
  nn::Embedding words{5, 4};
  nn::Linear head{4, 5};
  Param same = words.weight;
  TiedWords() {
    head.weight = words.weight;
    TD_REGISTER(words, head);
  }
};
struct Frozen : nn::Module {
  nn::Linear fc{2, 2};
  std::vector<nn::Linear> teacher = nn::repeat(2, [] { return nn::Linear(2, 2); });
  Param constant{ones({2}), false};
  Buffer cache{ones({2})};
  Frozen() {
    for (nn::Linear& l : teacher) l.requires_grad_(false);
    TD_REGISTER(fc);
  }
};
struct Locals : nn::Module {
  nn::Linear fc{2, 2};
  Locals() {
    nn::Linear other(2, 2);
    std::vector<nn::Linear> more = nn::repeat(2, [] { return nn::Linear(2, 2); });
    fc.weight.assign_(other.weight.value() + more[0].weight.value());
    TD_REGISTER(fc);
  }
};
struct Outer : nn::Module {
  TiedWords tied;
  std::vector<LostInMap> none;
  nn::Sequential body{nn::Linear(4, 4), nn::ReLU(), nn::Linear(4, 4)};
  nn::ModuleDict heads;
  Outer() {
    heads.insert("a", nn::Linear(4, 2));
    TD_REGISTER(tied, none, body, heads);
  }
};
struct Pointers : nn::Module {
  nn::Linear* a;
  nn::Linear* b;
  nn::Linear* c;
  nn::Linear fc{2, 2};
  Pointers(nn::Linear* a, nn::Linear* b) : a(a), b(b), c(b + 1) { TD_REGISTER(fc); }
};

TEST(Registration, NoFalseAlarms) {
  EXPECT_EQ(said<TiedWords>(), "");
  EXPECT_EQ(said<Frozen>(), "");
  EXPECT_EQ(said<Locals>(), "");
  EXPECT_EQ(said<Outer>(), "");
  testing::internal::CaptureStderr();
  nn::Linear of_others[2] = {nn::Linear(2, 2), nn::Linear(2, 2)};
  EXPECT_EQ(Pointers(&of_others[0], &of_others[1]).parameters().size(), 2u);
  Outer net, shared = net, own = clone(net);
  Outer moved = std::move(shared);
  for (Outer* each : {&net, &own, &moved}) EXPECT_EQ(each->parameters().size(), 8u);
  struct Holder : nn::Module {
    Outer held;
    explicit Holder(Outer net) : held(std::move(net)) { TD_REGISTER(held); }
  } holder(std::move(moved));
  EXPECT_EQ(holder.parameters().size(), 8u);
  auto old = net.tied;
  net.tied = TiedWords();
  EXPECT_EQ(net.parameters().size(), 8u);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// A member that nobody has written, and padding after a member, may hold the address of a Param
// that is gone, at which a later one of another layer lies.
struct Unwritten : nn::Module {
  nn::GRU gru{3, 4};
  const void* scratch;
  bool flag = false;
  nn::LSTM lstm{4, 4};
  int64_t size;
  Unwritten() { TD_REGISTER(gru, lstm); }
};

TEST(Registration, OldAddressesAreNoParams) {
  std::vector<const void*> old;
  size_t met = 0;
  testing::internal::CaptureStderr();
  for (size_t round = 0; round < 32; ++round) {
    alignas(Unwritten) unsigned char bytes[sizeof(Unwritten)] = {};
    for (size_t i = 0; !old.empty() && i + sizeof(void*) <= sizeof bytes; i += sizeof(void*))
      std::memcpy(bytes + i, &old[(i / sizeof(void*) + round) % old.size()], sizeof(void*));
    auto* net = new (bytes) Unwritten;
    {
      nn::GRU gru(3, 4);
      nn::LSTM lstm(4, 4);
      std::vector<const void*> fresh;
      for (const Param& p : gru.parameters()) fresh.push_back(p.cell().get());
      for (const Param& p : lstm.parameters()) fresh.push_back(p.cell().get());
      for (const void* p : fresh)
        for (size_t i = 0; i + sizeof(void*) <= sizeof bytes; i += sizeof(void*))
          met += std::memcmp(bytes + i, &p, sizeof p) == 0;
      old = fresh;
      EXPECT_EQ(net->parameters().size(), 8u);
    }
    net->~Unwritten();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
#ifndef TANDEM_SANITIZED  // AddressSanitizer does not give a freed address out again at once
  EXPECT_GT(met, 0u);
#endif
}

// Nor are three of them in order a vector of the layers that lie there by now.
struct Spare : nn::Module {
  nn::Linear fc{3, 4};
  const void* scratch[4];
  nn::Linear out{4, 2};
  Spare() { TD_REGISTER(fc, out); }
};

TEST(Registration, OldAddressesAreNoVectors) {
  std::array<nn::Linear, 2> others{nn::Linear(3, 4), nn::Linear(3, 4)};
  const void* const end = others.data() + 2;
  alignas(Spare) unsigned char bytes[sizeof(Spare)] = {};
  for (size_t i = 0; i + sizeof(void*) <= sizeof bytes; i += sizeof(void*)) {
    const void* old = i / sizeof(void*) % 3 == 0 ? others.data() : end;
    std::memcpy(bytes + i, &old, sizeof old);
  }
  asm volatile("" : : "r"(bytes) : "memory");  // they are written
  auto* net = new (bytes) Spare;
  EXPECT_EQ(net->parameters().size(), 4u);
  asm volatile("" : : "r"(bytes) : "memory");
  size_t left = 0;
  const void* const first = others.data();
  for (size_t i = 0; i + sizeof(void*) <= sizeof bytes; i += sizeof(void*))
    left += std::memcmp(bytes + i, &first, sizeof first) == 0;
  EXPECT_GT(left, 0u);
  net->~Spare();
}

struct Copies : nn::Module {
  std::vector<nn::Linear> stack{3, nn::Linear(4, 4)};
  Copies() { TD_REGISTER(stack); }
};
struct Repeated : nn::Module {
  std::vector<nn::Linear> stack = nn::repeat(3, [] { return nn::Linear(4, 4); });
  std::vector<nn::Linear> cone = nn::repeat(3, [](int64_t i) { return nn::Linear(4 - i, 3 - i); });
  std::vector<nn::ReLU> act{3, nn::ReLU()};
  Repeated() { TD_REGISTER(stack, cone, act); }
};
struct SharedOnPurpose : nn::Module {
  nn::Linear a{4, 4};
  nn::Sequential body{a, nn::ReLU(), a};
  SharedOnPurpose() { TD_REGISTER(a, body); }
};
struct CopiesInList : nn::Module {
  nn::ModuleList list{std::vector<nn::AnyModule>(3, nn::AnyModule(nn::Linear(4, 4)))};
  CopiesInList() { TD_REGISTER(list); }
};

TEST(Registration, ListsOfCopiesWarn) {
  const std::string text = said<Copies>();
  EXPECT_TRUE(has(text, "Copies (stack) holds 3 copies of one Linear")) << text;
  EXPECT_TRUE(has(text, "its 20 parameters")) << text;
  EXPECT_TRUE(has(text, "nn::repeat(3, [] { return nn::Linear(...); })")) << text;
  EXPECT_EQ(count(text, "warning"), 1u) << text;
  EXPECT_TRUE(has(said<CopiesInList>(), "ModuleList holds 3 copies of one Linear"));
  EXPECT_EQ(said<Repeated>(), "");
  EXPECT_EQ(said<SharedOnPurpose>(), "");
}

TEST(Registration, RepeatMakesLayersOfTheirOwn) {
  Repeated net;
  EXPECT_EQ(net.num_parameters(), 3 * 20 + (4 * 3 + 3) + (3 * 2 + 2) + (2 * 1 + 1));
  EXPECT_TRUE(has(thrown([] { nn::repeat(-1, [] { return 1; }); }, ErrorKind::Value), "got -1"));
  EXPECT_EQ(nn::repeat(3, [](int64_t i) { return i * i; }), (std::vector<int64_t>{0, 1, 4}));
}

}  // namespace
}  // namespace tandem
