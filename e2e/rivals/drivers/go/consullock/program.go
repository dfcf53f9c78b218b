package consullock

import (
	"strings"

	"lockkeeper/rivals/contract"
)

// Program is consul-lock: the program `consul lock`, from PATH, which runs the command itself and stops it when
// the lock is lost: SIGTERM, and SIGKILL after 5 s.
// Follows https://developer.hashicorp.com/consul/commands/lock. -shell=false keeps the words of the command
// apart, and -verbose makes it say that the lock is lost. It has no option for the TTL of its session, which is
// 15 s, so --lease-ms does nothing.
//
// Fencing token: none that the command could see. Reentrant: no. Tells of a loss: by stopping the command. After
// a crash: as consul-api.
func Program(o *contract.Options) *contract.Program {
	return &contract.Program{
		Command: func(command []string) []string {
			line := []string{
				"consul", "lock", "-http-addr=" + o.Servers, "-name=" + o.Name,
				"-shell=false", "-verbose", o.Lock,
			}
			return append(line, command...)
		},
		Lost: func(line string) bool { return strings.Contains(line, "Lock lost") },
	}
}
