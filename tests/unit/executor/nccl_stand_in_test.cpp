// Claims about the stand-in for NCCL: that it meets, orders and refuses as tests of the
// communicator rely on. Two or more ranks are driven by one thread, since no call blocks.
#include "tests/unit/executor/nccl_stand_in.h"

#include <gtest/gtest.h>

namespace bayplan::exec {
namespace {

class NcclStandInTest : public ::testing::Test {
 protected:
  void make_world(int size) {
    ASSERT_EQ(nccl_.get_unique_id(&id_), ncclSuccess);
    comms_.resize(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      EXPECT_EQ(
          nccl_.comm_init_rank_config(&comms_[static_cast<std::size_t>(r)], size, id_, r, &config),
          ncclInProgress);
      streams_.push_back(stand_in_.make_stream());
    }
    for (ncclComm_t comm : comms_) EXPECT_EQ(settled(comm), ncclSuccess);
  }
  void TearDown() override {
    for (ncclComm_t comm : comms_) nccl_.comm_abort(comm);
    EXPECT_EQ(stand_in_.violations(), std::vector<std::string>{});
    EXPECT_EQ(stand_in_.alive(), 0);
  }
  /// State after more polls than any call is in progress for by itself.
  ncclResult_t settled(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    for (int i = 0; i < 5 && state == ncclInProgress; ++i) {
      EXPECT_EQ(nccl_.comm_get_async_error(comm, &state), ncclSuccess);
    }
    return state;
  }
  bool idle(std::size_t rank) { return nccl_.stream_query(streams_[rank]) == cudaSuccess; }
  ncclResult_t send(std::size_t from, int to, const void* data, std::size_t bytes) {
    return nccl_.send(data, bytes, ncclUint8, to, comms_[from], streams_[from]);
  }
  ncclResult_t receive(std::size_t to, int from, void* data, std::size_t bytes) {
    return nccl_.recv(data, bytes, ncclUint8, from, comms_[to], streams_[to]);
  }

  test::NcclStandIn stand_in_;
  const NcclApi& nccl_ = stand_in_.api();
  ncclUniqueId id_{};
  std::vector<ncclComm_t> comms_;
  std::vector<cudaStream_t> streams_;
};

TEST_F(NcclStandInTest, ACommunicatorIsInProgressUntilAllRanksHaveCome) {
  ASSERT_EQ(nccl_.get_unique_id(&id_), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  comms_.resize(2);
  nccl_.comm_init_rank_config(&comms_[0], 2, id_, 0, &config);
  EXPECT_EQ(settled(comms_[0]), ncclInProgress);
  nccl_.comm_init_rank_config(&comms_[1], 2, id_, 1, &config);
  EXPECT_EQ(settled(comms_[0]), ncclSuccess);
  EXPECT_EQ(settled(comms_[1]), ncclSuccess);
}

TEST_F(NcclStandInTest, WorkReachesTheStreamOnlyWhenTheCallIsOutOfProgress) {
  make_world(2);
  int data = 7;
  EXPECT_EQ(send(0, 1, &data, 4), ncclInProgress);
  EXPECT_TRUE(idle(0));  // what a caller must not take for the end
  EXPECT_EQ(settled(comms_[0]), ncclSuccess);
  EXPECT_FALSE(idle(0));  // rendezvous: nobody receives yet
  int got = 0;
  receive(1, 0, &got, 4);
  EXPECT_EQ(settled(comms_[1]), ncclSuccess);
  EXPECT_TRUE(idle(0));
  EXPECT_TRUE(idle(1));
  EXPECT_EQ(got, 7);
}

TEST_F(NcclStandInTest, OnlyTheOutermostGroupEndIssues) {
  make_world(2);
  int mine = 1;
  std::vector<int> got(2);
  nccl_.group_start();
  nccl_.group_start();
  send(0, 1, &mine, 4);
  EXPECT_EQ(nccl_.group_end(), ncclSuccess);
  receive(0, 1, &got[0], 4);
  EXPECT_EQ(nccl_.group_end(), ncclInProgress);
  EXPECT_EQ(settled(comms_[0]), ncclSuccess);
  // Receiving first would block rank 1 for ever if rank 0's two were not one group.
  nccl_.group_start();
  receive(1, 0, &got[1], 4);
  nccl_.group_end();
  EXPECT_EQ(settled(comms_[1]), ncclSuccess);
  EXPECT_TRUE(idle(1));
  EXPECT_FALSE(idle(0));
  int theirs = 2;
  send(1, 0, &theirs, 4);
  EXPECT_EQ(settled(comms_[1]), ncclSuccess);
  EXPECT_TRUE(idle(0));
  EXPECT_EQ(got, (std::vector<int>{2, 1}));
  EXPECT_EQ(nccl_.group_end(), ncclInvalidUsage);  // none is open
}

TEST_F(NcclStandInTest, WithoutAGroupCrossingSendsDoNotMeet) {
  make_world(2);
  std::vector<int> data(4);
  for (std::size_t r = 0; r < 2; ++r) {
    send(r, static_cast<int>(1 - r), &data[r], 4);
    EXPECT_EQ(settled(comms_[r]), ncclSuccess);
    receive(r, static_cast<int>(1 - r), &data[2 + r], 4);
    EXPECT_EQ(settled(comms_[r]), ncclSuccess);
  }
  EXPECT_FALSE(idle(0));
  EXPECT_FALSE(idle(1));
}

TEST_F(NcclStandInTest, SplitMakesOneCommunicatorPerColorOrderedByKey) {
  make_world(4);
  const std::vector<int> colors = {0, 5, 5, NCCL_SPLIT_NOCOLOR};
  std::vector<ncclComm_t> children(4, comms_[0]);
  for (std::size_t r = 0; r < 4; ++r) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const int key = -static_cast<int>(r);  // reversed
    EXPECT_EQ(nccl_.comm_split(comms_[r], colors[r], key, &children[r], &config), ncclInProgress);
    if (r < 3) {
      EXPECT_EQ(settled(comms_[r]), ncclInProgress);
    }
  }
  for (ncclComm_t comm : comms_) EXPECT_EQ(settled(comm), ncclSuccess);
  EXPECT_EQ(children[3], nullptr);
  EXPECT_EQ(stand_in_.alive(), 4 + 3);
  // Root 0 of the second color is world rank 2, whose key is the smaller one.
  std::vector<int> data = {0, 11, 22, 33};
  for (const std::size_t r : {1, 2}) {
    EXPECT_EQ(settled(children[r]), ncclSuccess);
    nccl_.broadcast(&data[r], &data[r], 1, ncclInt32, 0, children[r], streams_[r]);
    EXPECT_EQ(settled(children[r]), ncclSuccess);
  }
  EXPECT_EQ(data, (std::vector<int>{0, 22, 22, 33}));
  for (ncclComm_t child : children) {
    if (child != nullptr) nccl_.comm_abort(child);
  }
}

TEST_F(NcclStandInTest, MessagesOfDifferentSizeOrTypeAreAnInvalidArgumentOfBoth) {
  make_world(2);
  std::vector<int> data(4);
  send(0, 1, data.data(), 8);
  EXPECT_EQ(settled(comms_[0]), ncclSuccess);
  receive(1, 0, data.data() + 2, 4);
  EXPECT_EQ(settled(comms_[1]), ncclInvalidArgument);
  EXPECT_EQ(settled(comms_[0]), ncclInvalidArgument);
  EXPECT_FALSE(idle(0));
}

TEST_F(NcclStandInTest, CollectivesOfDifferentTypeAreAnInvalidArgumentOfAll) {
  make_world(3);
  std::vector<double> data(3);
  for (std::size_t r = 0; r < 3; ++r) {
    nccl_.all_reduce(&data[r], &data[r], 1, r == 1 ? ncclFloat64 : ncclFloat32, ncclSum, comms_[r],
                     streams_[r]);
    settled(comms_[r]);
  }
  for (ncclComm_t comm : comms_) EXPECT_EQ(settled(comm), ncclInvalidArgument);
}

TEST_F(NcclStandInTest, ABusyCommunicatorRefusesTheNextCall) {
  make_world(2);
  int data = 0;
  EXPECT_EQ(send(0, 1, &data, 4), ncclInProgress);
  EXPECT_EQ(send(0, 1, &data, 4), ncclInvalidArgument);
}

TEST_F(NcclStandInTest, AbortEmptiesTheStreamOfTheOneThatAborts) {
  make_world(2);
  int data = 0;
  for (std::size_t r = 0; r < 2; ++r) {
    receive(r, static_cast<int>(1 - r), &data, 4);
    settled(comms_[r]);
  }
  EXPECT_EQ(nccl_.comm_abort(comms_[0]), ncclSuccess);
  EXPECT_TRUE(idle(0));
  EXPECT_FALSE(idle(1));  // NCCL does not tell the others
  comms_.erase(comms_.begin());
}

TEST_F(NcclStandInTest, UseAfterAbortIsAViolation) {
  make_world(2);
  nccl_.comm_abort(comms_[0]);
  nccl_.comm_abort(comms_[1]);
  EXPECT_TRUE(stand_in_.violations().empty());
  ncclResult_t state{};
  EXPECT_EQ(nccl_.comm_get_async_error(comms_[0], &state), ncclInvalidArgument);
  EXPECT_EQ(stand_in_.violations(),
            (std::vector<std::string>{"poll of a communicator that does not exist"}));
  stand_in_.forget_violations();
  comms_.clear();
}

}  // namespace
}  // namespace bayplan::exec
