// Stands for one user of a lock: runs a command while it holds the lock, as the lock's documentation tells.
//
//	driver --system SYSTEM --servers HOST:PORT[,...] --lock NAME --name ID --lease-ms MS
//	       [--times N] [--hold-ms MS] [--token-file FILE] -- COMMAND ARG...
//
// Package contract has what all systems share; each other package names the pages that it follows.
package main

import (
	"fmt"
	"os"

	"lockkeeper/rivals/consullock"
	"lockkeeper/rivals/contract"
	"lockkeeper/rivals/etcd"
	"lockkeeper/rivals/kube"
	"lockkeeper/rivals/redlock"
)

func main() {
	o := contract.Parse()
	switch o.System {
	case "etcd-mutex":
		contract.Run(o, etcd.ConnectMutex)
	case "etcdctl-lock":
		contract.RunProgram(o, etcd.Etcdctl(o))
	case "k8s-lease", "k8s-lease-defaults", "k8s-lease-release", "k8s-lease-release-defaults":
		contract.Run(o, kube.Connect)
	case "redlock":
		contract.Run(o, redlock.Connect)
	case "consul-api":
		contract.Run(o, consullock.Connect)
	case "consul-lock":
		contract.RunProgram(o, consullock.Program(o))
	default:
		fmt.Fprintln(os.Stderr, "--system: there is no", o.System)
		os.Exit(2)
	}
}
