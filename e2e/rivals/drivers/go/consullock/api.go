// Package consullock has the locks of Consul.
//
// consul-api: Lock of the Go API.
// Follows https://pkg.go.dev/github.com/hashicorp/consul/api#Lock.Lock: the channel that it returns "is closed if
// our lock is lost", and one has to watch it. The library makes and renews its session, which has the check of its
// node's health, as is the default. --lease-ms is the TTL of the session, of which Consul wants 10 s at least; everything
// else has its default. --servers is one agent.
//
// consul-api-ttl: the same with a session without checks. The comment of Lock says why: "It is NOT safe to assume that
// the lock is held until Unlock() unless the Session is specifically created without any associated health checks. By
// default Consul sessions prefer liveness over safety and an application must be able to handle the lock being lost."
// The driver renews such a session by Session.RenewPeriodic, and takes its end for a loss, too.
//
// Fencing token: ModifyIndex of the key, as acquiring it changes the key; this driver asks for it. Reentrant: no. Tells
// of a loss: by that channel. After a crash: the servers end the session when the check of its node fails, else between
// one and two TTLs after the last renewal, and give the key to nobody for a lock delay of 15 s more.
package consullock

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/consul/api"

	"lockkeeper/rivals/contract"
)

// https://developer.hashicorp.com/consul/api-docs/session#ttl
const leastTTL = 10 * time.Second

type system struct {
	options *contract.Options
	client  *api.Client
	lock    *api.Lock
	// Ends the renewals of the driver's own session.
	renewed chan struct{}
}

// Connect makes the client, which connects when it is used.
func Connect(_ context.Context, o *contract.Options) (contract.System, error) {
	client, err := api.NewClient(&api.Config{Address: o.Servers})
	if err != nil {
		return nil, err
	}
	return &system{options: o, client: client}, nil
}

// Calls are those of that page, and its Semaphore.
func (s *system) Calls() map[string]string {
	return map[string]string{
		"again": "Lock.Lock", "try": "LockTryOnce for 1 ms", "timed": "LockTryOnce",
		"share": "Semaphore", "exceed": "a third holder",
	}
}

// Probe makes one of these calls. LockWaitTime cannot be zero, which stands for its default.
func (s *system) Probe(ctx context.Context, verb string, wait time.Duration) error {
	switch verb {
	case "again":
		_, err := s.lock.Lock(ctx.Done())
		return err
	case "share", "exceed":
		semaphore, err := s.client.SemaphoreOpts(&api.SemaphoreOptions{
			Prefix: s.options.Lock, Limit: 2, SessionName: s.options.Name, SessionTTL: s.ttl(),
		})
		if err != nil {
			return err
		}
		_, err = semaphore.Acquire(ctx.Done())
		return err
	case "try":
		wait = time.Millisecond
	}
	options := s.lockOptions()
	options.LockTryOnce = true
	options.LockWaitTime = wait
	var err error
	if s.lock, err = s.client.LockOpts(options); err != nil {
		return err
	}
	gone, err := s.lock.Lock(ctx.Done())
	if err == nil && gone == nil {
		return contract.ErrBusy
	}
	return err
}

func (s *system) ttl() string {
	return max(s.options.Lease, leastTTL).String()
}

func (s *system) lockOptions() *api.LockOptions {
	return &api.LockOptions{Key: s.options.Lock, SessionName: s.options.Name, SessionTTL: s.ttl()}
}

func (s *system) Acquire(ctx context.Context, lost func(string)) (*int64, error) {
	options := s.lockOptions()
	if s.options.System == "consul-api-ttl" {
		if err := s.own(options, lost); err != nil {
			return nil, err
		}
	}
	var err error
	s.lock, err = s.client.LockOpts(options)
	if err != nil {
		return nil, err
	}
	gone, err := s.lock.Lock(ctx.Done())
	if err != nil {
		return nil, err
	}
	if gone == nil {
		return nil, errors.New("Lock was interrupted")
	}
	go func() {
		// Also closed after Unlock.
		<-gone
		lost("the channel of Lock is closed")
	}()
	return s.modifyIndex(), nil
}

// Not known if the agent does not answer now.
func (s *system) modifyIndex() *int64 {
	pair, _, err := s.client.KV().Get(s.options.Lock, nil)
	if err != nil || pair == nil {
		return nil
	}
	token := int64(pair.ModifyIndex)
	return &token
}

func (s *system) Release() error {
	return s.lock.Unlock()
}

// Close ends what the driver has begun itself. Renewals that end delete their session, if the process goes on; otherwise its
// TTL ends it.
func (s *system) Close() {
	if s.renewed != nil {
		close(s.renewed)
		s.renewed = nil
	}
}

// Gives the lock a session without checks, which this driver renews.
func (s *system) own(options *api.LockOptions, lost func(string)) error {
	s.Close()
	entry := &api.SessionEntry{Name: s.options.Name, TTL: s.ttl()}
	id, _, err := s.client.Session().CreateNoChecks(entry, nil)
	if err != nil {
		return err
	}
	options.Session = id
	done := make(chan struct{})
	s.renewed = done
	go func() {
		// Without an error the driver has ended it.
		if err := s.client.Session().RenewPeriodic(s.ttl(), id, nil, done); err != nil {
			lost("RenewPeriodic: " + err.Error())
		}
	}()
	return nil
}
