package contract

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// Options of every driver.
type Options struct {
	System    string
	Servers   string
	Lock      string
	Name      string
	Lease     time.Duration
	Times     int
	Hold      time.Duration
	TokenFile string
	Command   []string
	// See Crowd.
	Crowd        int
	RejoinAtOnce bool
	// See Probe.
	Probe string
	Bound time.Duration
	Wait  time.Duration
}

// Parse reads the command line; it ends the process if that is wrong.
func Parse() *Options {
	o := &Options{}
	flag.StringVar(&o.System, "system", "", "the lock, see main.go")
	flag.StringVar(&o.Servers, "servers", "", "HOST:PORT,... or what the system says")
	flag.StringVar(&o.Lock, "lock", "", "name of the lock")
	flag.StringVar(&o.Name, "name", "", "name of this contender")
	lease := flag.Int("lease-ms", 0, "lease, session timeout, TTL or expiry")
	hold := flag.Int("hold-ms", 0, "hold for this time; 0: until the command ends")
	flag.IntVar(&o.Times, "times", 0, "end after having had the lock this often; 0: never")
	flag.StringVar(&o.TokenFile, "token-file", "", "file with the bearer token, for an API server")
	flag.Int64("boot-offset-ns", 0, "unused: Go reads CLOCK_BOOTTIME")
	flag.IntVar(&o.Crowd, "crowd", 0, "contenders in this process, without a command")
	rejoin := flag.String("rejoin", "next", "of a crowd: next or at-once")
	flag.StringVar(&o.Probe, "probe", "", "steps, without a command")
	bound := flag.Int("bound-ms", 0, "of a step of --probe")
	wait := flag.Int("wait-ms", 0, "of a step of --probe that gives up by itself")
	flag.Parse()
	o.RejoinAtOnce = *rejoin == "at-once"
	o.Lease = time.Duration(*lease) * time.Millisecond
	o.Hold = time.Duration(*hold) * time.Millisecond
	o.Bound = time.Duration(*bound) * time.Millisecond
	o.Wait = time.Duration(*wait) * time.Millisecond
	o.Command = flag.Args()
	isWhole := len(o.Command) > 0
	switch {
	case o.Crowd > 0:
		isWhole = !isWhole && o.Hold > 0 && o.Probe == ""
	case o.Probe != "":
		isWhole = !isWhole && o.Bound > 0 && o.Wait > 0
	}
	if o.Servers == "" || o.Lock == "" || o.Name == "" || o.Lease <= 0 || !isWhole {
		fmt.Fprintln(os.Stderr, "needs --servers, --lock, --name, --lease-ms, and -- COMMAND, or --hold-ms and --crowd, or --probe, --bound-ms and --wait-ms")
		os.Exit(2)
	}
	return o
}

// Addresses are the parts of --servers.
func (o *Options) Addresses() []string {
	return strings.Split(o.Servers, ",")
}

// LeaseSeconds is the lease for systems that count whole seconds: rounded up.
func (o *Options) LeaseSeconds() int {
	return int((o.Lease + time.Second - 1) / time.Second)
}
