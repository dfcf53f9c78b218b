// Package consullock has the locks of Consul.
//
// consul-api: Lock of the Go API.
// Follows https://pkg.go.dev/github.com/hashicorp/consul/api#Lock.Lock: the channel that it returns "is closed if
// our lock is lost", and one has to watch it. The library renews its session. --lease-ms is the TTL of the
// session, of which Consul wants 10 s at least; everything else has its default. --servers is one agent.
//
// Fencing token: ModifyIndex of the key, as acquiring it changes the key. Reentrant: no. Tells of a loss: by
// that channel. After a crash: the servers end the session between one and two TTLs after the last renewal,
// and give the key to nobody for a lock delay of 15 s more.
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
}

// Connect makes the client, which connects when it is used.
func Connect(_ context.Context, o *contract.Options) (contract.System, error) {
	client, err := api.NewClient(&api.Config{Address: o.Servers})
	if err != nil {
		return nil, err
	}
	return &system{options: o, client: client}, nil
}

func (s *system) Acquire(ctx context.Context, lost func(string)) (*int64, error) {
	var err error
	s.lock, err = s.client.LockOpts(&api.LockOptions{
		Key:         s.options.Lock,
		SessionName: s.options.Name,
		SessionTTL:  max(s.options.Lease, leastTTL).String(),
	})
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

func (s *system) Close() {}
