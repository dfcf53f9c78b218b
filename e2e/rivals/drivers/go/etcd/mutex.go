// Package etcd has the locks of etcd.
//
// etcd-mutex: Mutex of a Session.
// Follows https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency: the example of Mutex.Lock, and Session.Done,
// which "closes when the lease is orphaned, expires, or is otherwise no longer being refreshed". The library
// keeps the lease alive. --lease-ms is the TTL of the session, in whole seconds.
//
// Fencing token: the revision of Mutex.Header. Reentrant: yes, the key of a session that has it is found
// again. Tells of a loss: by Session.Done. After a crash: the server deletes the key with the lease, a TTL
// after the last word of the client, and not before a new leader has given leases their full TTL again.
package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

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
