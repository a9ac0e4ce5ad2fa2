// SPDX-License-Identifier: Apache-2.0
// Sound (WAV, features against librosa's), VOC boxes, masks, Planetoid's pickles: good files, and
// files that are truncated or hostile.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tandem/base/hash/crc32c.h"
#include "tandem/data/audio.h"
#include "tandem/data/sets/vision_datasets.h"
#include "tandem/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::data {
namespace {

class Media : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() /
           fmt::format("tandem-media-{}-{}", ::getpid(),
                       ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string write(const std::string& name, const std::string& bytes) {
    const auto path = dir_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  std::filesystem::path dir_;
};

void expect_text(const std::function<void()>& f, const char* part) {
  const std::string text = error_of(f);
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nwanted: " << part;
}

std::string little(uint64_t v, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(v >> (8 * i) & 0xFF);
  return out;
}
std::string wav(int tag, int channels, int bits, const std::string& data) {
  const int frame = channels * bits / 8;
  return "RIFF" + little(36 + data.size(), 4) + "WAVEfmt " + little(16, 4) +
         little(static_cast<uint64_t>(tag), 2) + little(static_cast<uint64_t>(channels), 2) +
         little(8000, 4) + little(static_cast<uint64_t>(8000 * frame), 4) +
         little(static_cast<uint64_t>(frame), 2) + little(static_cast<uint64_t>(bits), 2) + "data" +
         little(data.size(), 4) + data;
}

TEST_F(Media, WavOfEachCoding) {
  const auto bits = [](auto v) {
    std::string s(sizeof v, '\0');
    std::memcpy(s.data(), &v, sizeof v);
    return s;
  };
  struct Row {
    int tag, bits;
    std::string data;
    std::vector<float> want;
  };
  const Row rows[] = {
      {1, 8, std::string("\x80\xC0\x00", 3), {0, 0.5F, -1}},
      {1, 16, little(0x4000, 2) + little(0x8000, 2), {0.5F, -1}},
      {1, 24, little(0x400000, 3) + little(0xFFFFFF, 3), {0.5F, -0x1p-23F}},
      {1, 32, little(0x40000000, 4) + little(0x80000000, 4), {0.5F, -1}},
      {3, 32, bits(0.25F) + bits(-2.0F), {0.25F, -2}},
      {3, 64, bits(0.25) + bits(-2.0), {0.25F, -2}},
  };
  for (const Row& r : rows) {
    SCOPED_TRACE(r.bits);
    const io::Audio a = io::decode_wav(wav(r.tag, 1, r.bits, r.data));
    EXPECT_EQ(a.sample_rate, 8000);
    EXPECT_EQ(a.waveform.to_vector<float>(), r.want);
    // Every truncation is rejected.
    const std::string whole = wav(r.tag, 1, r.bits, r.data);
    for (size_t n = 0; n < whole.size(); ++n)
      EXPECT_NE(error_of([&] { io::decode_wav(whole.substr(0, n)); }).find("Format"),
                std::string::npos)
          << n;
  }
  const io::Audio two = io::decode_wav(wav(1, 2, 16, little(0x4000, 2) + little(0xC000, 2)));
  EXPECT_EQ(two.waveform.shape(), Shape(2, 1));
  EXPECT_EQ(two.waveform.to_vector<float>(), (std::vector<float>{0.5F, -0.5F}));
  const Tensor x = tensor({{0.0F, 0.5F, -1.0F, 1.0F}});
  io::save_wav(x, 16000, (dir_ / "a.wav").string());
  const io::Audio back = io::read_wav((dir_ / "a.wav").string());
  EXPECT_EQ(back.sample_rate, 16000);
  EXPECT_EQ(back.waveform.to_vector<float>(),
            (std::vector<float>{0, 0.5F, -1, 32767.0F / 32768.0F}));
}

TEST_F(Media, HostileWav) {
  expect_text([] { io::decode_wav("RIFFxxxxWEBP", {}, "a.wav"); }, "'a.wav' is not a WAV file");
  expect_text([] { io::decode_wav(wav(2, 1, 16, "ab")); },
              "encoding 2 with 16 bits is not supported");
  expect_text([] { io::decode_wav(wav(1, 0, 16, "ab")); }, "0 channels at 8000 Hz");
  expect_text([] { io::decode_wav(wav(1, 2, 16, "ab")); }, "not a whole number of frames of 4");
  expect_text([] { io::decode_wav(wav(1, 1, 16, "abcd"), {.limit = 1}); }, "at most 1 are allowed");
  std::string huge = wav(1, 1, 16, "ab");
  huge.replace(40, 4, little(0xFFFFFFFE, 4));
  expect_text([&] { io::decode_wav(huge); }, "has 4294967294 bytes, the file ends after 2");
}

TEST(AudioFeatures, EqualLibrosas) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const StateDict golden = load(std::string(root ? root : ".") + "/tests/data/audio.safetensors");
  const Tensor x = golden.at("x");
  const MelOptions htk{.n_mels = 40};
  MelOptions slaney{.spectrogram = {.n_fft = 2048, .hop_length = 512},
                    .slaney_norm = true,
                    .mel_scale = MelScale::slaney};
  struct Row {
    const char* name;
    Tensor got;
  };
  const Row rows[] = {
      {"power", spectrogram(x)},
      {"magnitude_short",
       spectrogram(x, {.n_fft = 512, .win_length = 320, .hop_length = 160, .power = 1})},
      {"mel_htk", mel_spectrogram(x, htk)},
      {"mel_slaney", mel_spectrogram(x, slaney)},
      {"db", amplitude_to_DB(mel_spectrogram(x, htk), {.top_db = 80})},
      {"mfcc", mfcc(x, {.n_mfcc = 13, .mel = htk})},
  };
  for (const Row& r : rows) {
    SCOPED_TRACE(r.name);
    const Tensor want = golden.at(r.name).unsqueeze(0);
    ASSERT_EQ(r.got.shape(), want.shape());
    const float scale = want.abs().max().item<float>();
    EXPECT_LE((r.got - want).abs().max().item<float>(), 1e-4F * std::max(scale, 1.0F));
  }
}

TEST(AudioFeatures, ResampledSineIsASine) {
  const int64_t n = 4000;
  for (const auto& [from, to] :
       {std::pair<int64_t, int64_t>{8000, 16000}, {16000, 8000}, {44100, 16000}, {8000, 11025}}) {
    SCOPED_TRACE(fmt::format("{} {}", from, to));
    std::vector<float> in;
    for (int64_t i = 0; i < n; ++i)
      in.push_back(static_cast<float>(
          std::sin(2 * M_PI * 440 * static_cast<double>(i) / static_cast<double>(from))));
    const Tensor out = resample(tensor(in, Shape(int64_t{1}, n)), from, to);
    ASSERT_EQ(out.size(1), (n * to + from - 1) / from);
    const auto v = out.to_vector<float>();
    for (size_t i = 200; i + 200 < v.size(); ++i)
      ASSERT_NEAR(v[i], std::sin(2 * M_PI * 440 * static_cast<double>(i) / static_cast<double>(to)),
                  5e-3)
          << i;
  }
}

TEST(AudioFeatures, Masking) {
  GeneratorGuard generator({4, 0});
  int64_t most = 0;
  for (int i = 0; i < 40; ++i) {
    const Tensor t = time_masking(ones({2, 5, 20}), 8), f = frequency_masking(ones({2, 20, 5}), 8);
    const auto zeros_t = static_cast<int64_t>(200 - t.sum().item<float>());
    ASSERT_EQ(zeros_t % 10, 0);
    ASSERT_EQ(static_cast<int64_t>(200 - f.sum().item<float>()) % 10, 0);
    ASSERT_LE(zeros_t, 80);
    most = std::max(most, zeros_t);
  }
  EXPECT_GE(most, 50);
  EXPECT_THROW(time_masking(ones({5, 20}), 8), Error);
  EXPECT_THROW(spectrogram(ones({1, 100})), Error);
  EXPECT_THROW(mel_spectrogram(ones({1, 4000}), {.f_min = 9000}), Error);
}

const char* kXml =
    "<annotation><filename>a.jpg</filename><object><name>RBC</name><difficult>0</difficult>"
    "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>5</xmax><ymax>7</ymax></bndbox></object>"
    "<object><name>WBC</name><difficult>1</difficult><bndbox><xmin>0</xmin><ymin>0</ymin>"
    "<xmax>3</xmax><ymax>3</ymax></bndbox></object></annotation>";

TEST_F(Media, Flac) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const struct {
    const char* name;
    int64_t rate, channels, frames;
    uint32_t sum;  // as make_golden_flac.py says
  } kCases[] = {{"s16", 11025, 2, 3000, 0xcfd9686d},
                {"m24", 48000, 1, 700, 0x894f4098},
                {"m8", 8000, 1, 300, 0xf12c83ce}};
  for (const auto& c : kCases) {
    const std::string path =
        std::string(root ? root : ".") + "/tests/data/flac/" + c.name + ".flac";
    const io::Audio a = io::read_audio(path);
    EXPECT_EQ(a.sample_rate, c.rate);
    ASSERT_EQ(a.waveform.shape(), Shape(c.channels, c.frames));
    std::string bytes;
    for (const float v : a.waveform.transpose(0, 1).contiguous().to_vector<float>()) {
      const auto whole = static_cast<int32_t>(static_cast<double>(v) * 2147483648.0);
      bytes.append(reinterpret_cast<const char*>(&whole), 4);
    }
    EXPECT_EQ(crc32c(bytes), c.sum) << c.name;
    // Any truncation or change is noticed: every byte is under a checksum, except the header's.
    const std::string file = read_file(path);
    for (size_t n = 0; n < file.size(); n += 1 + file.size() / 200)
      EXPECT_THROW(io::decode_audio(std::string_view(file).substr(0, n)), Error) << n;
    const size_t head = file.size() - (c.frames == 3000 ? 2000 : c.frames / 4);
    for (size_t n = head; n < file.size(); n += 1 + file.size() / 200)
      for (const int flip : {1, 0x80, 0xFF}) {
        std::string changed = file;
        changed[n] = static_cast<char>(changed[n] ^ flip);
        EXPECT_THROW(io::decode_audio(changed), Error) << c.name << " " << n;
      }
  }
  expect_text([] { io::decode_audio("MThd", {}, "song"); },
              "'song' is neither a WAV nor a FLAC file");
}

TEST_F(Media, VocBoxes) {
  const std::string png = io::encode_png(zeros({3, 8, 9}, DType::u8));
  write("Annotations/a.xml", kXml);
  write("JPEGImages/a.jpg", png);
  write("ImageSets/Main/train.txt", "a\r\n\n");
  const VOCDetection all(dir_.string(), {.image_set = "train"});
  EXPECT_EQ(all.classes(), (std::vector<std::string>{"RBC", "WBC"}));
  const Detection d = all.get(0);
  EXPECT_EQ(d.image.shape(), Shape(3, 8, 9));
  EXPECT_EQ(d.boxes.to_vector<float>(), (std::vector<float>{1, 2, 5, 7, 0, 0, 3, 3}));
  EXPECT_EQ(d.labels.to_vector<int64_t>(), (std::vector<int64_t>{0, 1}));
  const VOCDetection easy(
      dir_.string(),
      {.classes = {"WBC", "RBC"}, .keep_difficult = false, .transform = RandomHorizontalFlip(1)});
  EXPECT_EQ(easy.get(0).boxes.to_vector<float>(), (std::vector<float>{4, 2, 8, 7}));
  EXPECT_EQ(easy.get(0).labels.to_vector<int64_t>(), std::vector<int64_t>{1});
  expect_text([&] { VOCDetection(dir_.string(), {.classes = {"RBC"}}); }, "class 'WBC' is not");
  expect_text([&] { all.get(1); }, "sample 1 of a dataset of 1");
  expect_text([&] { VOCDetection(dir_.string(), {.image_set = "test"}); }, "Io");
  const std::string xml = kXml;
  const auto broken = [&](const char* from, const char* to, const char* text) {
    std::string s = xml;
    s.replace(s.find(from), std::strlen(from), to);
    write("Annotations/a.xml", s);
    expect_text([&] { VOCDetection{dir_.string()}; }, text);
  };
  broken("</annotation>", "", "is not a complete <annotation>");
  broken("<xmin>1<", "<xmin>x<", "<xmin> is not a number");
  broken("<xmax>5<", "<xmax>0<", "ends before it starts");
  broken("<ymax>7</ymax>", "", "there is no <ymax>");
}

TEST_F(Media, MasksBesideImages) {
  const Tensor mask = tensor(std::vector<uint8_t>{0, 255, 127, 128}, Shape(1, 2, 2));
  write("image/1.png", io::encode_png(zeros({1, 2, 2}, DType::u8)));
  write("label/1.png", io::encode_png(mask));
  const ImageMaskFolder set(dir_.string());
  EXPECT_EQ(set.get(0).x.shape(), Shape(1, 2, 2));
  EXPECT_EQ(set.get(0).y.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 0, 1}));
  write("label/1.png", io::encode_png(zeros({1, 3, 2}, DType::u8)));
  expect_text([&] { set.get(0); }, "is [1, 2, 2], its mask [1, 3, 2]");
  write("image/2.png", "x");
  expect_text([&] { ImageMaskFolder{dir_.string()}; }, "has no mask");
}

TEST(Sets, RealOnes) {
  const char* root = std::getenv("TANDEM_DATA");
  if (!root || !std::filesystem::exists(std::string(root) + "/cora"))
    GTEST_SKIP() << "TANDEM_DATA has no cora";
  const std::string data = root;
  const Planetoid cora = load_planetoid(data + "/cora");
  EXPECT_EQ(cora.x.shape(), Shape(2708, 1433));
  EXPECT_EQ(cora.num_classes, 7);
  EXPECT_EQ(cora.edge_index.shape(), Shape(2, 10556));
  EXPECT_EQ(cora.x.sum().item<float>(), 49216);  // words in all papers
  EXPECT_EQ(cora.train_mask.to(DType::i64).sum().item<int64_t>(), 140);
  EXPECT_EQ(cora.val_mask.to(DType::i64).sum().item<int64_t>(), 500);
  EXPECT_EQ(cora.test_mask.to(DType::i64).sum().item<int64_t>(), 1000);
  EXPECT_EQ(bincount(cora.y.masked_fill(~cora.train_mask, 7)).narrow(0, 0, 7).to_vector<int64_t>(),
            std::vector<int64_t>(7, 20));
  const VOCDetection bccd(data + "/bccd", {.image_set = "train"});
  EXPECT_EQ(bccd.classes(), (std::vector<std::string>{"Platelets", "RBC", "WBC"}));
  EXPECT_EQ(bccd.get(0).image.shape(), Shape(3, 480, 640));
  // Decoded at 1/2: 1/4 would not hold 150 x 200.
  const Tensor small = io::read_image(bccd.file(0), {.min_height = 150, .min_width = 200});
  EXPECT_EQ(small.shape(), Shape(3, 240, 320));
  EXPECT_EQ(io::read_image(bccd.file(0), {.min_height = 120, .min_width = 1}).shape(),
            Shape(3, 120, 160));
  const Tensor reduced = resize_image(bccd.get(0).image, 240, 320);
  EXPECT_LT((small.to(DType::f32) - reduced.to(DType::f32)).abs().mean().item<float>(), 4);
  EXPECT_EQ(io::read_image(bccd.file(0), {.min_height = 9999, .min_width = 1}).shape(),
            Shape(3, 480, 640));
  const ImageMaskFolder membrane(data + "/membrane");
  EXPECT_EQ(membrane.size(), 30);
  EXPECT_EQ(membrane.get(3).x.shape(), Shape(1, 512, 512));
  const WavFolder fsdd(data + "/fsdd", {.length = 8000});
  EXPECT_EQ(fsdd.size(), 1000);
  EXPECT_EQ(fsdd.classes().size(), 10U);
  EXPECT_EQ(fsdd.get(999).x.shape(), Shape(1, 8000));
  EXPECT_EQ(fsdd.get(999).y.item<int64_t>(), 9);
}

TEST_F(Media, HostilePickles) {
  const char* root = std::getenv("TANDEM_DATA");
  if (!root || !std::filesystem::exists(std::string(root) + "/cora"))
    GTEST_SKIP() << "TANDEM_DATA has no cora";
  for (const auto& e : std::filesystem::directory_iterator(std::string(root) + "/cora"))
    std::filesystem::copy(e.path(), dir_ / e.path().filename());
  const auto path = dir_ / "ind.cora.y";
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  in.close();
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  for (size_t n = 0; n + 1 < whole.size(); n += n < 200 ? 1 : 97) {
    std::filesystem::remove(path);
    write("ind.cora.y", whole.substr(0, n));
    const std::string text = error_of([&] { load_planetoid(dir_.string()); });
    ASSERT_TRUE(text.find("Format") == 0 || text.find("Io") == 0) << n << ": " << text;
  }
  std::filesystem::remove(path);
  write("ind.cora.y", "cos\nsystem\n(S'true'\ntR.");
  expect_text([&] { load_planetoid(dir_.string()); },
              "it names \"os.system\", which such a file does not need");
}

}  // namespace
}  // namespace tandem::data
