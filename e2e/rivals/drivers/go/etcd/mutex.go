// Package etcd has the locks of etcd.
//
// etcd-mutex: Mutex of a Session.
// Follows https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency: the example of Mutex.Lock, and Session.Done,
// which "closes when the lease is orphaned, expires, or is otherwise no longer being refreshed". The library
// keeps the lease alive. --lease-ms is the TTL of the session, in whole seconds.
//
// Fencing token: the revision of Mutex.Header. Reentrant: yes, the key of a session that has it is found
// again, and one Unlock deletes it. Tells of a loss: by Session.Done. After a crash: the server deletes the key with
// the lease, a TTL after the last word of the client, and not before a new leader has given leases their full TTL
// again.
package etcd

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"

	"lockkeeper/rivals/contract"
)

type mutex struct {
	options *contract.Options
	client  *clientv3.Client
	session *concurrency.Session
	mutex   *concurrency.Mutex
	// Closed when the lock is given back.
	over chan struct{}
}

// ConnectMutex makes a client as in the example of https://pkg.go.dev/go.etcd.io/etcd/client/v3.
func ConnectMutex(_ context.Context, o *contract.Options) (contract.System, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: o.Addresses(), DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	return &mutex{options: o, client: client}, nil
}

// Calls are those of the page above, and of https://pkg.go.dev/go.etcd.io/etcd/client/v3/experimental/recipes.
func (m *mutex) Calls() map[string]string {
	return map[string]string{
		"again": "Mutex.Lock", "try": "Mutex.TryLock", "timed": "Mutex.Lock with a deadline",
		"share": "recipe.RWMutex", "exceed": "RWMutex.Lock",
	}
}

// Probe makes one of these calls.
func (m *mutex) Probe(ctx context.Context, verb string, wait time.Duration) error {
	if verb == "again" {
		return m.mutex.Lock(ctx)
	}
	if err := m.begin(); err != nil {
		return err
	}
	m.mutex = concurrency.NewMutex(m.session, m.options.Lock)
	switch verb {
	case "try":
		return busy(m.mutex.TryLock(ctx))
	case "share":
		return recipe.NewRWMutex(m.session, m.options.Lock).RLock()
	case "exceed":
		return recipe.NewRWMutex(m.session, m.options.Lock).Lock()
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return busy(m.mutex.Lock(ctx))
}

func busy(err error) error {
	if errors.Is(err, concurrency.ErrLocked) || errors.Is(err, context.DeadlineExceeded) {
		return contract.ErrBusy
	}
	return err
}

func (m *mutex) Acquire(ctx context.Context, lost func(string)) (*int64, error) {
	if err := m.begin(); err != nil {
		return nil, err
	}
	m.mutex = concurrency.NewMutex(m.session, m.options.Lock)
	if err := m.mutex.Lock(ctx); err != nil {
		return nil, err
	}
	done, over := m.session.Done(), make(chan struct{})
	m.over = over
	go func() {
		select {
		case <-done:
			lost("Session.Done is closed")
		case <-over:
		}
	}()
	token := m.mutex.Header().Revision
	return &token, nil
}

// A session is for many turns, until it is lost.
func (m *mutex) begin() error {
	if m.session != nil {
		select {
		case <-m.session.Done():
		default:
			return nil
		}
	}
	var err error
	m.session, err = concurrency.NewSession(m.client, concurrency.WithTTL(m.options.LeaseSeconds()))
	return err
}

func (m *mutex) Release() error {
	close(m.over)
	// After a loss the servers may be away.
	ctx, cancel := context.WithTimeout(context.Background(), m.options.Lease)
	defer cancel()
	return m.mutex.Unlock(ctx)
}

func (m *mutex) Close() {
	if m.session != nil {
		_ = m.session.Close()
	}
	_ = m.client.Close()
}
