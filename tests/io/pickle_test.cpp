// SPDX-License-Identifier: Apache-2.0
// Pickles as data: what Python writes is read; what would run code or cost memory is rejected with
// a Format error that names it.
#include "tandem/io/pickle/pickle.h"

#include <cmath>

#include "tests/io/io_helper.h"

namespace tandem::io {
namespace {

using Kind = PickleNode::Kind;
using Use = PickleGlobal::Use;
constexpr PickleGlobal kGlobals[] = {{"collections OrderedDict", Use::mapping},
                                     {"collections defaultdict", Use::defaults},
                                     {"m function", Use::function},
                                     {"m Object", Use::object},
                                     {"m Type", Use::value}};

Pickle read(const std::string& s) { return read_pickle(s, "test", kGlobals); }

template <size_t n>
std::string raw(const char (&s)[n]) {
  return std::string(s, n - 1);
}

TEST(Pickle, WritesWhatItReads) {
  PickleWriter w;
  w.empty_dict();
  w.mark();
  w.text("n");
  w.none();
  w.text("yes");
  w.boolean(true);
  w.text("integers");
  w.mark();
  for (const int64_t v : {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{-1}, int64_t{1} << 31,
                          INT64_MIN, INT64_MAX})
    w.integer(v);
  w.tuple();
  w.text("numbers");
  w.empty_list();
  w.mark();
  for (const double v : {0.1, -1e300, static_cast<double>(INFINITY)}) w.number(v);
  w.appends();
  w.setitems();
  const std::string s = w.finish();
  const Pickle p = read(s);
  EXPECT_EQ(p.bytes(), s.size());
  ASSERT_EQ(p.root().kind, Kind::dict);
  const auto& d = p.root().items;
  ASSERT_EQ(d.size(), 8u);
  EXPECT_EQ(d[0]->text, "n");
  EXPECT_EQ(d[1]->kind, Kind::none);
  EXPECT_EQ(d[3]->integer, 1);
  std::vector<int64_t> integers;
  for (const PickleNode* n : d[5]->items) integers.push_back(n->integer);
  EXPECT_EQ(integers,
            (std::vector<int64_t>{0, 255, 256, -1, int64_t{1} << 31, INT64_MIN, INT64_MAX}));
  EXPECT_EQ(d[7]->items[0]->number, 0.1);
  EXPECT_TRUE(std::isinf(d[7]->items[2]->number));
}

TEST(Pickle, ReadsProtocols2To5) {
  // pickle.dumps({"a": [1, (2.5, -3)], "b": "a"}, protocol) of CPython 3.11
  for (const std::string& s :
       {raw("\x80\x02}q\x00(X\x01\x00\x00\x00"
            "aq\x01]q\x02(K\x01G@\x04\x00\x00\x00\x00\x00\x00J\xfd\xff\xff\xff\x86q\x03"
            "eX\x01\x00\x00\x00"
            "bq\x04h\x01u."),
        raw("\x80\x04\x95(\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01"
            "a\x94]\x94(K\x01G@\x04\x00\x00\x00\x00\x00\x00J\xfd\xff\xff\xff\x86\x94"
            "e\x8c\x01"
            "b\x94h\x01u.")}) {
    const Pickle p = read(s);
    const auto& d = p.root().items;
    ASSERT_EQ(d.size(), 4u);
    EXPECT_EQ(d[1]->items[0]->integer, 1);
    EXPECT_EQ(d[1]->items[1]->items[0]->number, 2.5);
    EXPECT_EQ(d[1]->items[1]->items[1]->integer, -3);
    EXPECT_EQ(d[3], d[0]);  // one text in two places
  }
}

TEST(Pickle, CallsAreNodes) {
  const Pickle p =
      read(raw("\x80\x02"
               "cm\nfunction\n(K\x01K\x02tR."));
  EXPECT_EQ(p.root().kind, Kind::call);
  EXPECT_EQ(p.root().text, "m function");
  EXPECT_EQ(p.root().arguments->items.size(), 2u);
  EXPECT_EQ(read(raw("ccollections\nOrderedDict\n)R}b.")).root().kind, Kind::dict);
  EXPECT_EQ(read(raw("ccollections\nOrderedDict\n]](K\x01K\x02"
                     "ea\x85R."))
                .root()
                .items.size(),
            2u);
  EXPECT_EQ(read(raw("\x8a\x0a"
                     "0123456789."))
                .root()
                .kind,
            Kind::big_integer);
}

TEST(Pickle, ObjectsKeepTheirState) {
  const Pickle p =
      read(raw("cm\nObject\n)\x81K\x07T\x03\x00\x00\x00\xff\x00x\x86"
               "b."));
  EXPECT_EQ(p.root().kind, Kind::call);
  ASSERT_TRUE(p.root().state);
  EXPECT_EQ(p.root().state->items[0]->integer, 7);
  EXPECT_EQ(p.root().state->items[1]->text, raw("\xff\x00x"));
  EXPECT_EQ(read(raw("ccollections\ndefaultdict\ncm\nType\n\x85RK\x01K\x02s.")).root().items.size(),
            2u);
}

struct Hostile {
  const char* name;
  std::string bytes;
  const char* says;
};

// table: a pickle each and what is said of it
TEST(Pickle, RefusesEverythingElse) {
  const Hostile cases[] = {
      {"empty", "", "truncated"},
      {"no_stop", raw("\x80\x02K\x01"), "truncated"},
      {"os_system",
       raw("\x80\x02"
           "cos\nsystem\nX\x02\x00\x00\x00id\x85R."),
       "os.system"},
      {"posix_system",
       raw("\x80\x02"
           "cposix\nsystem\n(X\x02\x00\x00\x00idtR."),
       "posix.system"},
      {"builtins_eval",
       raw("\x80\x02"
           "c__builtin__\neval\nX\x01\x00\x00\x00"
           "1\x85R."),
       "__builtin__.eval"},
      {"builtins_exec",
       raw("\x80\x02"
           "cbuiltins\nexec\nX\x01\x00\x00\x00"
           "1\x85R."),
       "builtins.exec"},
      {"getattr",
       raw("\x80\x02"
           "cbuiltins\ngetattr\n."),
       "builtins.getattr"},
      {"subprocess",
       raw("\x80\x02"
           "csubprocess\nPopen\n."),
       "subprocess.Popen"},
      {"runpy", raw("crunpy\n_run_code\n."), "runpy._run_code"},
      {"torch_load", raw("ctorch\nload\n."), "torch.load"},
      {"load_from_bytes", raw("ctorch.storage\n_load_from_bytes\n."), "_load_from_bytes"},
      {"import_module", raw("cimportlib\nimport_module\n."), "importlib.import_module"},
      {"stack_global", raw("\x80\x04\x8c\x02os\x8c\x06system\x93."), "os.system"},
      {"stack_global_memo", raw("\x80\x04\x8c\x02os\x94\x8c\x06system\x94h\x00h\x01\x93."),
       "os.system"},
      {"stack_global_numbers", raw("\x80\x04K\x01K\x02\x93."), "is not a string"},
      {"global_spaces", raw("cm function\n\n."), "is not run"},
      {"global_prefix", raw("cm\nfunctions\n."), "is not run"},
      {"global_no_newline", raw("cm\nfunction"), "is never terminated"},
      {"global_long_name", "c" + std::string(1 << 20, 'a') + "\n\n.", "is never terminated"},
      {"inst", raw("(im\nfunction\n."), "INST"},
      {"obj", raw("(cm\nfunction\no."), "OBJ"},
      {"newobj_ex", raw("cm\nfunction\n)}\x92."), "NEWOBJ_EX"},
      {"persid", raw("Pabc\n."), "PERSID"},
      {"ext1", raw("\x82\x01."), "EXT1"},
      {"ext2", raw("\x83\x01\x01."), "EXT2"},
      {"ext4", raw("\x84\x01\x01\x01\x01."), "EXT4"},
      {"int_text", raw("I1\n."), "INT"},
      {"long_text", raw("L1L\n."), "LONG"},
      {"string_text", raw("S'a'\n."), "STRING"},
      {"unicode_text", raw("Va\n."), "UNICODE"},
      {"float_text", raw("F1.5\n."), "FLOAT"},
      {"get_text", raw("g0\n."), "GET"},
      {"put_text", raw("Np0\n."), "PUT"},
      {"dup", raw("N2."), "DUP"},
      {"pop", raw("NN0."), "POP"},
      {"pop_mark", raw("(N1N."), "POP_MARK"},
      {"frozenset", raw("(\x91."), "FROZENSET"},
      {"bytearray", raw("\x96\x00\x00\x00\x00\x00\x00\x00\x00."), "BYTEARRAY8"},
      {"next_buffer", raw("\x97."), "NEXT_BUFFER"},
      {"long4", raw("\x8b\xff\xff\xff\x7f."), "LONG4"},
      {"unicode8_huge", raw("\x8d\xff\xff\xff\xff\xff\xff\xff\x7f."), "BINUNICODE8"},
      {"unknown_opcode", raw("\xff."), "is not an opcode"},
      {"zero_byte", raw("\x00."), "is not an opcode"},
      {"protocol_0", raw("\x80\x00N."), "protocol 0"},
      {"protocol_9", raw("\x80\x09N."), "protocol 9"},
      {"reduce_number", raw("K\x01)R."), "integer is called"},
      {"reduce_type", raw("cm\nType\n)R."), "'m Type' is called"},
      {"reduce_call", raw("cm\nfunction\n)R)R."), "call is called"},
      {"reduce_list", raw("cm\nfunction\n]R."), "arguments"},
      {"reduce_empty", raw("R."), "stack is empty"},
      {"defaults_of_call", raw("ccollections\ndefaultdict\ncm\nfunction\n)R\x85R."),
       "is called with a call"},
      {"build_on_call", raw("cm\nfunction\n)R}b."), "attributes"},
      {"build_on_list", raw("]}b."), "attributes"},
      {"build_empty", raw("}b."), "stack is empty"},
      {"setitem_on_list", raw("]K\x01K\x02s."), "items for a dict are added to a list"},
      {"setitem_on_call", raw("cm\nfunction\n)RK\x01K\x02s."),
       "items for a dict are added to a call"},
      {"setitem_on_number", raw("K\x00K\x01K\x02s."), "are added to a integer"},
      {"setitems_odd", raw("}(K\x01K\x02K\x03u."), "no value"},
      {"append_on_dict",
       raw("}K\x01"
           "a."),
       "items for a list are added to a dict"},
      {"append_on_tuple",
       raw(")K\x01"
           "a."),
       "are added to a tuple"},
      {"appends_no_mark",
       raw("]K\x01"
           "e."),
       "mark"},
      {"tuple_no_mark", raw("t."), "mark"},
      {"tuple3_short", raw("NN\x87."), "stack is empty"},
      {"tuple_over_mark", raw("N(\x85."), "stack is empty"},
      {"pop_below_mark", raw("}K\x01(K\x02s."), "stack is empty"},
      {"two_values", raw("NN."), "2 values"},
      {"no_value", raw("\x80\x02."), "0 values"},
      {"mark_left", raw("N(."), "1 marks"},
      {"text_cut",
       raw("X\x10\x00\x00\x00"
           "abc."),
       "truncated"},
      {"text_huge",
       raw("X\xff\xff\xff\xff"
           "abc."),
       "exceeds the limit"},
      {"bytes_huge",
       raw("B\xff\xff\xff\x7f"
           "abc."),
       "exceeds the limit"},
      {"text_no_utf8", raw("X\x02\x00\x00\x00\xff\xfe."), "UTF-8"},
      {"recall_nothing", raw("h\x05."), "refers to value 5"},
      {"recall_far", raw("j\xff\xff\xff\xff."), "refers to value 4294967295"},
      {"put_nothing", raw("q\x00."), "stack is empty"},
      {"float_cut", raw("G@\x04"), "truncated"},
      {"int_cut", raw("J\x01\x02"), "truncated"},
      {"long1_cut", raw("\x8a\x08\x01"), "truncated"},
      {"frame_cut", raw("\x95\x01"), "truncated"},
      {"pairs_no_list", raw("ccollections\nOrderedDict\nK\x01\x85R."), "pairs"},
      {"pairs_of_three",
       raw("ccollections\nOrderedDict\n](NNN\x87"
           "e\x85R."),
       "pairs"},
      {"pairs_of_numbers",
       raw("ccollections\nOrderedDict\n]K\x01"
           "a\x85R."),
       "pairs"},
  };
  for (const Hostile& c : cases) {
    const std::string text = error_of([&] { read(c.bytes); });
    EXPECT_TRUE(text.starts_with("Format: ") && text.find(c.says) != std::string::npos)
        << c.name << ": " << text.substr(0, 300);
  }
  EXPECT_GE(std::size(cases), 80u);
}

TEST(Pickle, AnyByteChangedIsReadOrRefused) {
  const std::string good =
      raw("\x80\x02}q\x00(X\x01\x00\x00\x00"
          "aq\x01]q\x02(K\x01G@\x04\x00\x00\x00\x00\x00\x00J\xfd\xff"
          "\xff\xff\x86q\x03"
          "eX\x01\x00\x00\x00"
          "bq\x04"
          "ccollections\nOrderedDict\nq\x05)Rq\x06u.");
  for (size_t i = 0; i < good.size(); ++i)
    for (int v = 0; v < 256; ++v) {
      std::string s = good;
      s[i] = static_cast<char>(v);
      const std::string text = error_of([&] { read(s); });
      EXPECT_TRUE(text == "no error" || text.starts_with("Format: ")) << i << " " << v << text;
    }
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_TRUE(error_of([&] { read(good.substr(0, n)); }).starts_with("Format: ")) << n;
}

}  // namespace
}  // namespace tandem::io
