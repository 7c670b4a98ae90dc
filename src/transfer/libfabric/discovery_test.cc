// Goal: a network is found by provider and interface, and an error says what there is instead;
// what dead processes left of shm is removed, and nothing else. Method: this machine's loopback
// interface; a folder with names of living and dead processes.
#include "transfer/libfabric/discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "io/scratch_folder.h"
#include "transfer/libfabric/sweep.h"

namespace tandem::transfer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Discovery, ByProviderInterfaceAndAddress) {
  for (const std::string interface : {"lo", "127.0.0.1"}) {
    const auto found = find_libfabric({.provider = "tcp", .interface = interface});
    ASSERT_TRUE(found.ok()) << found.error().what;
    EXPECT_STREQ((*found)->fabric_attr->prov_name, "tcp;ofi_rxm");
    EXPECT_STREQ((*found)->domain_attr->name, "lo");
  }
  const auto shm = find_libfabric({.provider = "shm"});
  ASSERT_TRUE(shm.ok()) << shm.error().what;
  EXPECT_STREQ((*shm)->fabric_attr->prov_name, "shm");
}

TEST(Discovery, WhatIsNotThereIsToldWithWhatIs) {
  const auto provider = find_libfabric({.provider = "carrier-pigeon"});
  ASSERT_FALSE(provider.ok());
  EXPECT_EQ(provider.error().code, Code::kNotFound);
  EXPECT_THAT(provider.error().what,
              AllOf(HasSubstr("\"carrier-pigeon\""), HasSubstr("tcp;ofi_rxm on lo"),
                    HasSubstr("shm on shm")));
  const auto interface = find_libfabric({.provider = "tcp", .interface = "nosuch0"});
  ASSERT_FALSE(interface.ok());
  EXPECT_EQ(interface.error().code, Code::kNotFound);
  EXPECT_THAT(interface.error().what,
              AllOf(HasSubstr("\"nosuch0\""), HasSubstr("tcp;ofi_rxm on lo")));
}

TEST(Sweep, RemovesOnlyWhatTheDeadLeft) {
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  const io::ScratchFolder folder;
  const auto of = [&](pid_t process, const char* rest) {
    return folder.write(std::to_string(process) + rest, "x");
  };
  const auto left = of(dead, ":0:0");
  const std::filesystem::path kept[] = {of(::getpid(), ":0:0"), of(dead, ":0"), of(dead, ":0:0x"),
                                        of(dead, ""), folder.write("sem.queue", "x")};
  EXPECT_EQ(sweep_shared_memory(folder.path()), 1);
  EXPECT_FALSE(std::filesystem::exists(left));
  for (const auto& path : kept) EXPECT_TRUE(std::filesystem::exists(path)) << path;
  EXPECT_EQ(sweep_shared_memory("/no/such/folder"), 0);
}

}  // namespace
}  // namespace tandem::transfer
