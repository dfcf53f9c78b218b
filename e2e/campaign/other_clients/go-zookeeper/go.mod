// go-zookeeper, to stand in the same queue. e2e/campaign/src/other_clients.rs builds this into the user's cache directory,
// once per version of this folder.
module lockkeeper/other-clients

go 1.21

require github.com/go-zookeeper/zk v1.0.4
