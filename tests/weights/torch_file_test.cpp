// SPDX-License-Identifier: Apache-2.0
// PyTorch's files: those in golden/ (made by make_golden.py) are read exactly, what is written is
// read again, and hostile ones are rejected with a Format error that gives the reason.
#include "tandem/weights/torch_file.h"

#include "tandem/io/pickle/pickle.h"
#include "tandem/io/zip_internal.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"

namespace tandem::weights {
namespace {

std::string golden(const std::string& name) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/weights/golden/" + name;
}
std::vector<double> values(const Tensor& t) {
  std::vector<double> out(static_cast<size_t>(t.numel()));
  detail::copy_row_major(*t.impl(), out.data(), DType::f64);
  return out;
}
std::vector<double> count(size_t n) {
  std::vector<double> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<double>(i);
  return out;
}
template <size_t n>
std::string raw(const char (&s)[n]) {
  return std::string(s, n - 1);
}

TEST(TorchFile, ReadsEveryDType) {
  for (const char* name : {"dtypes.pth", "legacy_dtypes.pth"}) {
    const StateDict d = load_torch_state(golden(name));
    ASSERT_EQ(d.size(), static_cast<size_t>(kDTypeCount));
    for (const auto& [key, t] : d) {
      EXPECT_EQ(key, to_string(t.dtype()));
      EXPECT_EQ(t.shape(), (Shape{2, 3}));
      EXPECT_EQ(values(t),
                t.dtype() == DType::b8 ? (std::vector<double>{0, 1, 0, 1, 0, 1}) : count(6))
          << name << " " << key;
    }
  }
}

TEST(TorchFile, ReadsViewsOfOneStorage) {
  for (const char* name : {"views.pth", "legacy.pth", "protocol4.pth"}) {
    const StateDict d = load_torch_state(golden(name));
    ASSERT_EQ(d.size(), 9u) << name;
    const Tensor &base = d.at("base"), &t = d.at("t");
    EXPECT_EQ(values(base), count(24));
    EXPECT_EQ(t.shape(), (Shape{6, 4}));
    EXPECT_EQ(values(t)[1], 6);
    EXPECT_EQ(values(d.at("slice")), (std::vector<double>{6, 8, 10, 12, 14, 16}));
    EXPECT_EQ(values(d.at("row")), (std::vector<double>{12, 13, 14, 15, 16, 17}));
    EXPECT_EQ(values(d.at("expanded")), (std::vector<double>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
    EXPECT_EQ(d.at("scalar").dim(), 0);
    EXPECT_EQ(values(d.at("scalar")), std::vector<double>{2.5});
    EXPECT_EQ(d.at("empty").shape(), (Shape{0, 3}));
    EXPECT_EQ(values(d.at("parameter")), (std::vector<double>{1, 1}));
    EXPECT_EQ(base.impl()->data, d.at("again").impl()->data);
    EXPECT_EQ(base.impl()->storage, t.impl()->storage);
    EXPECT_FALSE(base.impl()->storage->writable && std::string(name) != "legacy.pth");
  }
}

TEST(TorchFile, ReadsCheckpoints) {
  const TorchValue v = load_torch(golden("checkpoint.pth"));
  EXPECT_EQ(*v.find("epoch")->as_int(), 3);
  EXPECT_EQ(*v.find("best")->as_double(), 0.5);
  EXPECT_EQ(*v.find("name")->as_string(), "run");
  EXPECT_TRUE(v.find("none")->is_none());
  EXPECT_FALSE(*(*v.find("flags")->as_list())[1].as_bool());
  EXPECT_TRUE(v.find("pair")->is_tuple());
  EXPECT_EQ(*v.find("negative")->as_int(), -7);
  EXPECT_EQ(*v.find("big")->as_int(), int64_t{1} << 40);
  EXPECT_EQ(*v.find("dtype")->as_string(), "torch.float16");
  EXPECT_EQ(*v.find("device")->as_string(), "cpu");
  EXPECT_EQ(*(*v.find("size")->as_list())[1].as_int(), 6);
  const TorchValue& optimizer = *v.find("optimizer");
  const TorchValue& group = (*optimizer.find("param_groups")->as_list())[0];
  EXPECT_EQ(*group.find("lr")->as_double(), 0.01);
  EXPECT_EQ(group.find("params")->as_list()->size(), 4u);
  const auto& [key, first] = (*optimizer.find("state")->as_dict())[0];
  EXPECT_EQ(*key.as_int(), 0);
  EXPECT_EQ(values(*first.find("step")->as_tensor()), std::vector<double>{1});
  EXPECT_EQ(first.find("exp_avg")->as_tensor()->shape(), (Shape{2, 3}));
  const StateDict model = load_torch_state(golden("checkpoint.pth"));
  EXPECT_EQ(model.size(), 7u);  // the member "model" alone
  EXPECT_EQ(model.at("1.num_batches_tracked").dtype(), DType::i64);
}

// The same numbers, up to those of a 16-bit float; NaN for NaN.
void expect_numbers(const Tensor& got, const Tensor& want, const std::string& name) {
  EXPECT_EQ(got.shape(), want.shape()) << name;
  const std::vector<double> x = values(got), y = values(want);
  ASSERT_EQ(x.size(), y.size()) << name;
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_TRUE(x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i])) ||
                std::abs(x[i] - y[i]) <= 1e-6 * std::abs(y[i]))
        << name << " " << i << ": " << x[i] << ", not " << y[i];
}

// Each lies beside what PyTorch makes of it.
TEST(TorchFile, ReadsWhatOnlyPyTorchHas) {
  for (const char* file : {"only_torch.pth", "legacy_only_torch.pth"}) {
    ::testing::internal::CaptureStderr();
    const TorchValue v = load_torch(golden(file));
    const std::string said = ::testing::internal::GetCapturedStderr();
    const TorchValue::Dict& only = *v.find("only")->as_dict();
    EXPECT_GE(only.size(), 12u);
    for (const auto& [key, value] : only) {
      const std::string& name = *key.as_string();
      ASSERT_TRUE(value.as_tensor()) << name;
      const Tensor &got = *value.as_tensor(), &want = *v.find("want")->find(name)->as_tensor();
      expect_numbers(got, want, name);
      const bool narrower = name.starts_with("complex");  // which the file compares in f64
      EXPECT_TRUE(narrower || got.dtype() == want.dtype()) << name;
    }
    EXPECT_EQ(v.find("only")->find("complex64")->as_tensor()->dtype(), DType::f32);
    for (const char* word :
         {"complex64, and read as float32 with a last dimension of 2 (\"complex64\")",
          "4 tensors are quantised, and made float32 (\"qint8\", ...)",
          "4 tensors are sparse (torch.sparse_coo), and made dense"})
      EXPECT_NE(said.find(word), said.npos) << word << "\n" << said;
    EXPECT_EQ(said.find("float8_e5m2, and read as float32") != said.npos, file[0] == 'o') << said;
  }
}

TEST(TorchFile, ReadsNumPysValues) {
  const TorchValue v = *load_torch(golden("only_torch.pth")).find("numpy");
  EXPECT_EQ(*v.find("f64")->as_double(), 1.5);
  EXPECT_EQ(*v.find("f32")->as_double(), 0.25);
  EXPECT_EQ(*v.find("i64")->as_int(), -3);
  EXPECT_EQ(*v.find("u8")->as_int(), 200);
  EXPECT_EQ(*v.find("flag")->as_bool(), true);
  EXPECT_EQ(*v.find("text")->as_string(), "größe");
  const Tensor &array = *v.find("array")->as_tensor(), &fortran = *v.find("fortran")->as_tensor();
  EXPECT_EQ(array.dtype(), DType::f64);
  EXPECT_EQ(values(array), count(6));
  EXPECT_EQ(values(fortran), count(6));
  EXPECT_EQ(fortran.dtype(), DType::i64);
  EXPECT_EQ(values(*v.find("ids")->as_tensor()), (std::vector<double>{1, 65535}));
  EXPECT_EQ(v.find("complex")->as_tensor()->shape(), (Shape{1, 2}));
  EXPECT_EQ(v.find("empty")->as_tensor()->shape(), (Shape{0, 2}));
}

TEST(TorchFile, SaysWhatItCannotRead) {
  const std::string text = error_of([] { load_torch(golden("module.pth")); });
  EXPECT_TRUE(text.starts_with("Format: ")) << text;
  EXPECT_NE(text.find("Sequential"), std::string::npos) << text;
  EXPECT_NE(text.find("state_dict"), std::string::npos) << text;
}

TEST(TorchFile, ReadsWhatItWrites) {
  init();
  TempFolder dir;
  const Tensor x = arange(12).to(float32).reshape({3, 4});
  TorchValue::Dict d;
  for (const DType t : {float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8})
    d.emplace_back(to_string(t), x.to(t));
  d.emplace_back("bool", x > 5);
  d.emplace_back("transposed", x.t());
  d.emplace_back("twice", d[1].second);
  d.emplace_back("scalar", x.sum());
  d.emplace_back("empty", zeros({0, 2}));
  d.emplace_back("none", TorchValue());
  d.emplace_back("list", TorchValue::List{1, 2.5, "three", true});
  d.emplace_back("tuple", TorchValue::Tuple{{int64_t{1} << 40, -1}});
  d.emplace_back(7, TorchValue::Dict{{"nested", x}});
  save_torch(d, dir / "a.pth");
  const TorchValue v = load_torch(dir / "a.pth");
  for (const auto& [key, want] : d)
    if (key.as_string() && want.as_tensor()) {
      const Tensor got = *v.find(*key.as_string())->as_tensor();
      EXPECT_EQ(got.dtype(), want.as_tensor()->dtype());
      EXPECT_EQ(got.shape(), want.as_tensor()->shape());
      EXPECT_EQ(values(got), values(*want.as_tensor())) << *key.as_string();
    }
  EXPECT_EQ(v.find("twice")->as_tensor()->impl()->data,
            v.find("float32")->as_tensor()->impl()->data);
  EXPECT_EQ(*(*v.find("list")->as_list())[2].as_string(), "three");
  EXPECT_EQ(*(*v.find("tuple")->as_list())[0].as_int(), int64_t{1} << 40);
  EXPECT_EQ(*v.as_dict()->back().first.as_int(), 7);
  save_torch(d, dir / "b.pth");
  EXPECT_EQ(read_file(dir / "a.pth"), read_file(dir / "b.pth"));
  EXPECT_NE(error_of([&] { save_torch(Tensor(), dir / "c.pth"); }).find("Value: "),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              save_torch(TorchValue::Dict{{"a", 1}, {"a", 2}}, dir / "c.pth");
            }).find("twice"),
            std::string::npos);
}

// ---- hostile files

std::string text(const std::string& s) {
  io::PickleWriter w;
  w.text(s);
  const std::string all = w.finish();
  return all.substr(2, all.size() - 3);
}
std::string number(int64_t v) {
  io::PickleWriter w;
  w.integer(v);
  const std::string all = w.finish();
  return all.substr(2, all.size() - 3);
}
std::string numbers(const std::vector<int64_t>& list) {
  std::string s = "(";
  for (const int64_t v : list) s += number(v);
  return s + "t";
}
/// The parameters of a window of a storage; the defaults fit the storage "0" of 16 bytes.
struct Window {
  std::string function = "torch._utils\n_rebuild_tensor_v2", type = "torch\nFloatStorage",
              key = "0";
  int64_t elements = 4;
  std::string offset = number(0), sizes = numbers({4}), strides = numbers({1});
  std::string tag = "storage";
};
std::string window(const Window& w) {
  return "c" + w.function + "\n((" + text(w.tag) + "c" + w.type + "\n" + text(w.key) + text("cpu") +
         number(w.elements) + "tQ" + w.offset + w.sizes + w.strides + "\x89" +
         "ccollections\nOrderedDict\n)RtR";
}
std::string dict_of(const std::string& value) {
  return raw("\x80\x02}(") + text("w") + value + "u.";
}

struct Hostile {
  const char* name;
  std::string pickle;
  const char* says;
};

// table: a pickle each and what is said of it
TEST(TorchFile, RefusesHostilePickles) {
  TempFolder dir;
  const std::string path = dir / "x.pth", data(16, '\1');
  auto outcome = [&](const std::string& pickle) {
    io::ZipWriter zip(path);
    zip.add("a/data.pkl", {pickle}, false);
    zip.add("a/data/0", {data}, false);
    zip.commit();
    return error_of([&] { load_torch_state(path); });
  };
  ASSERT_EQ(outcome(dict_of(window({}))), "no error");
  ASSERT_EQ(outcome(dict_of(window({.offset = number(1), .sizes = numbers({3})}))), "no error");
  const int64_t huge = INT64_MAX;
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += "]";
  for (int i = 0; i < 199; ++i) deep += "a";
  // Each list contains the previous one twice: 2^60 values when walked.
  std::string bomb = raw("]q\x01");
  for (int i = 1; i < 60; ++i)
    bomb += std::string("](h") + static_cast<char>(i) + "h" + static_cast<char>(i) + "eq" +
            static_cast<char>(i + 1);
  const Hostile cases[] = {
      {"runs_code", dict_of(raw("cos\nsystem\n") + text("id") + "\x85R"), "os.system"},
      {"module", dict_of("ctorch.nn.modules.linear\nLinear\n)\x81"), "Linear"},
      {"numpy", dict_of("cnumpy.core.multiarray\n_reconstruct\n)R"), "expected an array of NumPy"},
      {"no_dict", raw("\x80\x02K\x01."), "no tensor"},
      {"no_tensor", dict_of(number(3)), "no tensor"},
      {"bytes", dict_of(raw("C\x01x")), "raw bytes"},
      {"big_integer",
       dict_of(raw("\x8a\x09"
                   "123456789")),
       "64 bits"},
      {"bare_storage",
       dict_of("(" + text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") +
               number(4) + "tQ"),
       "outside of a tensor"},
      {"key_of_dict", raw("\x80\x02}(") + "N" + window({}) + "u.", "key of the kind none"},
      {"deep", dict_of(deep), "nested"},
      {"inside_itself",
       dict_of(raw("]q\x01h\x01"
                   "a")),
       "nested"},
      {"doubling", dict_of("(" + bomb + "t"), "goes over the limit 'nodes'"},
      {"offset_negative", dict_of(window({.offset = number(-1)})), "beyond its storage"},
      {"offset_beyond", dict_of(window({.offset = number(1)})), "beyond its storage"},
      {"offset_huge", dict_of(window({.offset = number(huge)})), "beyond its storage"},
      {"offset_text", dict_of(window({.offset = text("0")})), "integer is expected"},
      {"offset_none", dict_of(window({.offset = "N"})), "integer is expected"},
      {"size_beyond", dict_of(window({.sizes = numbers({5})})), "beyond its storage"},
      {"size_negative", dict_of(window({.sizes = numbers({-1})})), "size -1"},
      {"size_huge", dict_of(window({.sizes = numbers({huge})})), "size 9223372036854775807"},
      {"size_big", dict_of(window({.sizes = numbers({int64_t{1} << 61})})), "beyond its storage"},
      {"sizes_overflow",
       dict_of(window({.sizes = numbers({int64_t{1} << 32, int64_t{1} << 32, 4}),
                       .strides = numbers({0, 0, 1})})),
       "beyond its storage"},
      {"sizes_shown",
       dict_of(window({.sizes = numbers({int64_t{1} << 38}), .strides = numbers({0})})),
       "far more elements"},
      {"sizes_shown_more",
       dict_of(window({.sizes = numbers({int64_t{1} << 41}), .strides = numbers({0})})),
       "far more elements"},
      {"size_number", dict_of(window({.sizes = number(4)})), "as its sizes"},
      {"size_of_texts", dict_of(window({.sizes = "(" + text("4") + "t"})), "integer is expected"},
      {"rank",
       dict_of(window({.sizes = numbers(std::vector<int64_t>(40, 1)),
                       .strides = numbers(std::vector<int64_t>(40, 1))})),
       "dimensions"},
      {"rank_differs", dict_of(window({.sizes = numbers({2, 2})})), "2 sizes and 1 strides"},
      {"stride_negative", dict_of(window({.strides = numbers({-1})})), "stride -1"},
      {"stride_huge", dict_of(window({.strides = numbers({huge})})), "stride"},
      {"stride_beyond", dict_of(window({.strides = numbers({2})})), "beyond its storage"},
      {"stride_overflow",
       dict_of(window({.sizes = numbers({3}), .strides = numbers({int64_t{1} << 61})})),
       "beyond its storage"},
      {"elements_huge", dict_of(window({.elements = huge})), "claims"},
      {"elements_negative", dict_of(window({.elements = -4})), "claims"},
      {"elements_more", dict_of(window({.elements = 5})), "claims"},
      {"wider_type", dict_of(window({.type = "torch\nDoubleStorage"})), "claims"},
      {"key_missing", dict_of(window({.key = "1"})), "storage \"1\" is missing"},
      {"key_path", dict_of(window({.key = "../data.pkl"})), "is missing"},
      {"key_empty", dict_of(window({.key = ""})), "is missing"},
      {"tag", dict_of(window({.tag = "module"})), "without a key"},
      {"complex", dict_of(window({.type = "torch\nComplexFloatStorage"})), "claims"},
      {"quantised", dict_of(window({.type = "torch\nQInt8Storage"})), "without a scale"},
      {"dtype_as_storage", dict_of(window({.type = "torch\nstrided"})), "not supported"},
      {"storage_unknown", dict_of(window({.type = "torch\nEvilStorage"})), "EvilStorage"},
      {"parameter_of_number", dict_of("ctorch._utils\n_rebuild_parameter\n(K\x01tR"), "no tensor"},
      {"parameter_empty", dict_of("ctorch._utils\n_rebuild_parameter\n)R"), "no tensor"},
      {"tensor_empty", dict_of("ctorch._utils\n_rebuild_tensor_v2\n)R"), "0 arguments"},
      {"tensor_short",
       dict_of("ctorch._utils\n_rebuild_tensor_v2\n(" + number(0) + number(0) + "tR"),
       "2 arguments"},
      {"tensor_v3_short", dict_of(window({.function = "torch._utils\n_rebuild_tensor_v3"})),
       "6 arguments"},
      {"tensor_of_numbers", dict_of("ctorch._utils\n_rebuild_tensor_v2\n(N" + number(0) + "))tR"),
       "no storage"},
      {"size_of_nothing", dict_of("ctorch\nSize\n)R"), "one argument"},
      {"device_of_nothing", dict_of("ctorch\ndevice\n)R"), "no name"},
      {"persistent_number",
       dict_of("ctorch._utils\n_rebuild_tensor_v2\n(K\x01Q" + number(0) + "))tR"), "no storage"},
      {"persistent_short",
       dict_of("ctorch._utils\n_rebuild_tensor_v2\n(" + text("0") + "\x85Q" + number(0) + "))tR"),
       "no storage"},
      {"bool_of_bytes", dict_of(window({.type = "torch\nBoolStorage"})), "no error"},
      {"name_twice", raw("\x80\x02}(") + text("w") + window({}) + text("w") + window({}) + "u.",
       "twice"},
      {"parameter_of_itself", dict_of([] {
         std::string s;
         for (int i = 0; i < 100; ++i) s += "ctorch._utils\n_rebuild_parameter\n(";
         s += "N";
         for (int i = 0; i < 100; ++i) s += "tR";
         return s;
       }()),
       "nested"},
  };
  for (const Hostile& c : cases) {
    const std::string got = outcome(c.pickle);
    EXPECT_TRUE((got.starts_with("Format: ") || got == "no error") &&
                got.find(c.says) != std::string::npos)
        << c.name << ": " << got.substr(0, 300);
  }
  EXPECT_GE(std::size(cases), 50u);
}

TEST(TorchFile, RefusesHostileArchives) {
  TempFolder dir;
  const std::string path = dir / "x.pth", data(16, '\1'), pickle = dict_of(window({}));
  using Member = std::pair<const char*, std::string>;
  auto archive = [&](const std::vector<Member>& members, bool deflate = false) {
    io::ZipWriter zip(path);
    for (const auto& [name, content] : members) zip.add(name, {content}, deflate);
    zip.commit();
    return error_of([&] { load_torch_state(path); });
  };
  auto refused = [](const std::string& got, const char* says) {
    EXPECT_TRUE(got.starts_with("Format: ") && got.find(says) != std::string::npos) << got;
  };
  const Member pkl{"a/data.pkl", pickle}, zero{"a/data/0", data};
  EXPECT_EQ(archive({pkl, zero}), "no error");
  EXPECT_EQ(archive({pkl, zero, {"a/byteorder", "little"}, {"a/version", "3\n"}}), "no error");
  refused(archive({zero}), "no data.pkl");
  refused(archive({pkl}), "is missing");
  refused(archive({pkl, {"b/data/0", data}}), "is missing");
  refused(archive({pkl, zero, zero}), "twice");
  refused(archive({pkl, {"b/data.pkl", pickle}, zero}), "two pickles");
  refused(archive({pkl, zero, {"a/byteorder", "big"}}), "big-endian");
  refused(archive({pkl, zero, {"a/constants.pkl", ""}}), "TorchScript");
  refused(archive({pkl, {"a/data/0", data.substr(0, 15)}}), "claims");
  refused(archive({pkl, {"a/data/0", ""}}), "claims");
  refused(archive({{"a/data.pkl", ""}, zero}), "truncated");
  refused(archive({pkl, zero}, /*deflate=*/true), "compressed");
  archive({pkl, zero});
  const std::string good = read_file(path);
  expect_robust(good, path, /*cuts_fail=*/true, [](const std::string& p) { load_torch_state(p); });
}

TEST(TorchFile, RefusesHostileLegacyFiles) {
  TempFolder dir;
  const std::string path = dir / "x.pth", good = read_file(golden("legacy_small.pth"));
  expect_robust(good, path, /*cuts_fail=*/true, [](const std::string& p) { load_torch_state(p); });
}

}  // namespace
}  // namespace tandem::weights
