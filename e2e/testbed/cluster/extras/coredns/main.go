// The DNS server of the test cluster: CoreDNS with the few plug-ins that it uses, since all of them take three times
// as long to build.
package main

import (
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

func main() {
	// The order in which a query passes the plug-ins.
	dnsserver.Directives = []string{"bind", "health", "ready", "errors", "kubernetes"}
	coremain.Run()
}
