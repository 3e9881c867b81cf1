// SPDX-License-Identifier: Apache-2.0
// Records of tracepoints decoded by formats of two kernels, by formats of kernels to come (a field
// moved, missing, not readable), and cut off.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agent/capture/trace_format.h"

namespace pollgap {
namespace {

std::string stored_format(const std::string& name) {
  std::ifstream file(POLLGAP_TRACE_FORMATS "/" + name + ".format");
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// A record as the kernel lays it out, its first 8 bytes a pointer as in a BPF program's context.
class Record {
 public:
  explicit Record(size_t fixed_bytes) : bytes_(fixed_bytes) {
    put<uint64_t>(0, 0xffffc90000123456);
  }
  template <typename T>
  Record& put(size_t offset, T value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof(value));
    return *this;
  }
  // A __data_loc field: its string lies behind what there is so far.
  Record& put_string(size_t offset, std::string_view text) {
    const auto where = static_cast<uint32_t>(bytes_.size() | ((text.size() + 1) << 16));
    for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
    bytes_.push_back(std::byte{0});
    return put(offset, where);
  }
  std::vector<std::byte> padded(size_t size) const {
    std::vector<std::byte> bytes = bytes_;
    bytes.resize(size, std::byte{0xa5});  // what an earlier record left there
    return bytes;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

Record failed_command() {
  Record record(32);
  record.put<uint16_t>(12, 0x500).put<uint16_t>(14, 7).put<uint8_t>(20, 3);
  record.put<uint32_t>(24, 0x3f2a51).put<int32_t>(28, -22);
  return record.put_string(8, "CREATE_QP").put_string(16, "bad parameter");
}

DecodedTrace decode(const std::string& group, const std::string& format,
                    const std::vector<std::byte>& record) {
  TraceFormats formats;
  const auto number = formats.add(group, format);
  if (!number) {
    ADD_FAILURE() << number.error().message;
    return {};
  }
  return formats.decode(number.value(), record);
}

std::map<std::string, std::string> by_name(const DecodedTrace& decoded) {
  return {decoded.fields.begin(), decoded.fields.end()};
}

class OfKernel : public testing::TestWithParam<const char*> {};

TEST_P(OfKernel, AFailedFirmwareCommand) {
  const DecodedTrace decoded =
      decode("mlx5", stored_format(std::string(GetParam()) + ".mlx5.mlx5_cmd"),
             failed_command().padded(512));
  EXPECT_EQ(decoded.event, "mlx5:mlx5_cmd");
  EXPECT_EQ(decoded.text,
            "CREATE_QP(0x500) op_mod(0x7) failed, status bad parameter(0x3), syndrome (0x3f2a51), "
            "err(-22)");
  const auto fields = by_name(decoded);
  EXPECT_EQ(fields.size(), 7U);
  EXPECT_EQ(fields.at("command_str"), "CREATE_QP");
  EXPECT_EQ(fields.at("syndrome"), "0x3f2a51");
  EXPECT_EQ(fields.at("err"), "-22");
  EXPECT_FALSE(decoded.truncated);
}

TEST_P(OfKernel, AMessageOfTheFirmware) {
  Record record(32);
  record.put<uint64_t>(16, 0x123456789ab).put<uint8_t>(24, 1).put<uint8_t>(25, 0x1c);
  record.put_string(8, "0000:3b:00.0").put_string(28, "QP 0x4f: retries exceeded\n");
  const DecodedTrace decoded =
      decode("mlx5", stored_format(std::string(GetParam()) + ".mlx5.mlx5_fw"), record.padded(512));
  EXPECT_EQ(decoded.text, "0000:3b:00.0 [0x123456789ab] 1 [0x1c] QP 0x4f: retries exceeded");
  EXPECT_EQ(by_name(decoded).at("msg"), "QP 0x4f: retries exceeded");
}

INSTANTIATE_TEST_SUITE_P(TraceFormats, OfKernel,
                         testing::Values("6.1.0-57-amd64", "6.12.95+deb12-amd64"));

TEST(TraceFormats, NamesOfValuesAndNetworkByteOrder) {
  Record connection(84);
  connection.put<uint32_t>(8, 4).put<uint64_t>(16, 10).put<int32_t>(24, 0);
  connection.put<uint16_t>(28, 2).put<uint16_t>(30, 0x1247).put<uint32_t>(32, 0x0f02000a);
  EXPECT_EQ(decode("rdma_cma", stored_format("6.12.95+deb12-amd64.rdma_cma.cm_event_handler"),
                   connection.bytes())
                .text,
            "cm.id=4 src=10.0.2.15:18194 dst= tos=0 DISCONNECTED (10/0)");

  Record datagram(92);
  datagram.put<uint8_t>(11, 1).put<uint16_t>(18, 0x1200).put<uint64_t>(72, 2000);
  datagram.put<int32_t>(80, 2).put<int32_t>(84, 3);
  const DecodedTrace decoded = decode(
      "ib_mad", stored_format("6.12.95+deb12-amd64.ib_mad.ib_mad_error_handler"), datagram.bytes());
  EXPECT_NE(decoded.text.find("2/3 retries"), std::string::npos) << decoded.text;
  EXPECT_NE(decoded.text.find("timeout 2000"), std::string::npos) << decoded.text;
  EXPECT_NE(decoded.text.find("attr_id 0x12 "), std::string::npos) << decoded.text;
}

TEST(TraceFormats, AFieldHasMoved) {
  std::string format = stored_format("6.12.95+deb12-amd64.mlx5.mlx5_cmd");
  format = replaced(format, "syndrome;\toffset:24;", "syndrome;\toffset:32;");
  Record record(40);
  record.put<uint32_t>(32, 0x77).put_string(8, "CREATE_QP").put_string(16, "ok");
  const DecodedTrace decoded = decode("mlx5", format, record.bytes());
  EXPECT_EQ(by_name(decoded).at("syndrome"), "0x77");
  EXPECT_NE(decoded.text.find("syndrome (0x77)"), std::string::npos) << decoded.text;
}

TEST(TraceFormats, AFieldIsMissingAndAnotherIsNew) {
  std::string format = stored_format("6.12.95+deb12-amd64.mlx5.mlx5_cmd");
  format = replaced(format, "u32 syndrome;", "u32 sub_status;");
  format = replaced(format, "REC->syndrome", "REC->sub_status");
  const DecodedTrace decoded = decode("mlx5", format, failed_command().bytes());
  EXPECT_EQ(by_name(decoded).count("syndrome"), 0U);
  EXPECT_EQ(by_name(decoded).at("sub_status"), "0x3f2a51");
}

TEST(TraceFormats, FieldsWhereThePrintFormatIsNotReadable) {
  std::string format = stored_format("6.12.95+deb12-amd64.mlx5.mlx5_cmd");
  format = replaced(format, "REC->syndrome", "future_function(REC->syndrome)");
  const DecodedTrace decoded = decode("mlx5", format, failed_command().bytes());
  EXPECT_EQ(decoded.text,
            "command_str=CREATE_QP opcode=1280 op_mod=7 status_str=bad parameter status=3 "
            "syndrome=4139601 err=-22");
}

TEST(TraceFormats, RecordsThatWereCutOff) {
  const std::string format = stored_format("6.1.0-57-amd64.mlx5.mlx5_cmd");
  const std::vector<std::byte> whole = failed_command().bytes();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const DecodedTrace decoded =
        decode("mlx5", format, {whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes)});
    EXPECT_TRUE(decoded.truncated) << bytes;
    EXPECT_EQ(decoded.fields.size(), 7U);
  }
  EXPECT_FALSE(decode("mlx5", format, whole).truncated);
}

TEST(TraceFormats, PointersOutOfTheRecord) {
  Record record = failed_command();
  record.put<uint32_t>(8, 0xffffffff).put<uint32_t>(16, 0x00ffffff);
  const DecodedTrace decoded =
      decode("mlx5", stored_format("6.1.0-57-amd64.mlx5.mlx5_cmd"), record.bytes());
  EXPECT_TRUE(decoded.truncated);
  EXPECT_EQ(by_name(decoded).at("opcode"), "0x500");
}

TEST(TraceFormats, LongTextsAreBounded) {
  Record record = failed_command();
  record.put_string(8, std::string(5000, 'x'));
  const DecodedTrace decoded =
      decode("mlx5", stored_format("6.1.0-57-amd64.mlx5.mlx5_cmd"), record.bytes());
  EXPECT_LE(decoded.text.size(), 512U);
  EXPECT_LE(by_name(decoded).at("command_str").size(), 256U);
}

TEST(TraceFormats, WhatIsNoFormatIsRefused) {
  TraceFormats formats;
  const std::string format = stored_format("6.1.0-57-amd64.mlx5.mlx5_cmd");
  for (const std::string& text :
       {std::string(), std::string("name: x\n"), replaced(format, "offset:28;", "offset:2800000;")})
    EXPECT_FALSE(formats.add("mlx5", text)) << text;
  EXPECT_EQ(formats.size(), 0U);
}

TEST(TraceFormats, SeveralKeepTheirNumbers) {
  TraceFormats formats;
  const auto first = formats.add("mlx5", stored_format("6.1.0-57-amd64.mlx5.mlx5_fw"));
  const auto second = formats.add("mlx5", stored_format("6.1.0-57-amd64.mlx5.mlx5_cmd"));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(formats.name(first.value()), "mlx5:mlx5_fw");
  EXPECT_EQ(formats.decode(second.value(), failed_command().bytes()).event, "mlx5:mlx5_cmd");
}

}  // namespace
}  // namespace pollgap
