package etcd

import (
	"strconv"

	"lockkeeper/rivals/contract"
)

// Etcdctl is etcdctl-lock: the program `etcdctl lock`, from PATH, which runs the command itself.
// Follows https://github.com/etcd-io/etcd/blob/main/etcdctl/README.md#lock-options-lockname-command-arg1-arg2-,
// with --ttl for --lease-ms, in whole seconds. While the command runs, etcdctl does not look at its session, so
// nothing ever stops the command.
//
// Fencing token: ETCD_LOCK_REV in the command's environment. Reentrant: no. Tells of a loss: never, if
// it runs a command. After a crash: as etcd-mutex.
func Etcdctl(o *contract.Options) *contract.Program {
	return &contract.Program{
		Command: func(command []string) []string {
			line := []string{
				"etcdctl", "--endpoints", o.Servers,
				"lock", "--ttl", strconv.Itoa(o.LeaseSeconds()), o.Lock, "--",
			}
			return append(line, command...)
		},
		Token: "ETCD_LOCK_REV",
	}
}
