// SPDX-License-Identifier: Apache-2.0
// Whose a device interrupt is, from a made-up /sys and /proc.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "agent/capture/interrupt_facts.h"

namespace pollgap {
namespace {

namespace fs = std::filesystem;

class InterruptFacts : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            ("irq." + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    fs::create_directories(device() / "msi_irqs");
    std::ofstream(device() / "msi_irqs/45") << "msix\n";
    fs::create_directories(root_ / "proc/irq/45/mlx5_comp3@pci:0000:3b:00.0");
    std::ofstream(root_ / "proc/irq/45/smp_affinity_list") << "3\n";
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path device() const { return root_ / "sys/bus/pci/devices/0000:3b:00.0"; }
  nlohmann::json facts(int irq) const {
    return nlohmann::json::parse(interrupt_facts(irq, root_.string()));
  }

  fs::path root_;
};

TEST_F(InterruptFacts, TellWhoseItIsAndWhereItMayGo) {
  fs::create_directories(device() / "infiniband/mlx5_0");
  const auto found = facts(45);
  EXPECT_EQ(found.at("device"), "0000:3b:00.0");
  EXPECT_EQ(found.at("rdma_device"), "mlx5_0");
  EXPECT_EQ(found.at("action"), "mlx5_comp3@pci:0000:3b:00.0");
  EXPECT_EQ(found.at("affinity"), "3");
}

TEST_F(InterruptFacts, FindAnRdmaDeviceBelowThePciDevice) {
  fs::create_directories(device() / "mlx5_core.sf.2/infiniband/mlx5_4");
  EXPECT_EQ(facts(45).at("rdma_device"), "mlx5_4");
}

TEST_F(InterruptFacts, LeaveOutWhatIsNotThere) {
  EXPECT_FALSE(facts(45).contains("rdma_device"));
  EXPECT_EQ(facts(46), nlohmann::json::object());
}

}  // namespace
}  // namespace pollgap
