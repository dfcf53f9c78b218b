// Stands for one user of a lock: runs a command while it holds the lock, as the lock's documentation tells.
//
//	driver --system SYSTEM --servers HOST:PORT[,...] --lock NAME --name ID --lease-ms MS
//	       [--times N] [--hold-ms MS] [--token-file FILE] -- COMMAND ARG...
//	driver ... --hold-ms MS --crowd N [--rejoin next|at-once]
//	driver ... --probe STEP,... --bound-ms MS --wait-ms MS
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
	run := contract.Run
	if o.Crowd > 0 {
		run = contract.Crowd
	}
	if o.Probe != "" {
		run = contract.Probe
	}
	switch o.System {
	case "etcd-mutex":
		run(o, etcd.ConnectMutex)
	case "etcdctl-lock":
		contract.RunProgram(o, etcd.Etcdctl(o))
	case "k8s-lease", "k8s-lease-defaults", "k8s-lease-release", "k8s-lease-release-defaults":
		run(o, kube.Connect)
	case "redlock":
		run(o, redlock.Connect)
	case "consul-api", "consul-api-ttl":
		run(o, consullock.Connect)
	case "consul-lock":
		contract.RunProgram(o, consullock.Program(o))
	default:
		fmt.Fprintln(os.Stderr, "--system: there is no", o.System)
		os.Exit(2)
	}
}
